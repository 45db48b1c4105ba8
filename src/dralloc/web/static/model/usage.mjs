// What there is of every device, who holds how much of it, and what could still be had.
//
// Claims are namespaced, so nobody who looks at claims sees what a device has left; slices do not say it either. This joins
// the two. The same rules as `dralloc.allocator.usage_report`; a test compares the two on random clusters.

import { largestRequest } from "./headroom.mjs";
import { parseQuantity, quantityLike } from "./quantity.mjs";

/** How one device is used: given out whole, shares, and what all shares together consume, in nanos. */
export function usageOf(holdings) {
  const usage = { dedicated: 0, shares: 0, consumed: new Map() };
  for (const { result } of holdings) {
    // Admin access takes nothing away from anyone.
    if (result.adminAccess) continue;
    if (result.shareID === undefined || result.shareID === null) {
      usage.dedicated += 1;
      continue;
    }
    usage.shares += 1;
    for (const [name, text] of Object.entries(result.consumedCapacity ?? {})) {
      usage.consumed.set(name, (usage.consumed.get(name) ?? 0n) + parseQuantity(text).nanos);
    }
  }
  return usage;
}

export function isShareable(device) {
  return Boolean(device.allowMultipleAllocations);
}

/** What is used and left of each capacity; `largest` is the most that one more request could get, null where none fits. */
export function capacityReports(device, usage) {
  const capacities = device.capacity ?? {};
  const left = new Map();
  for (const [name, capacity] of Object.entries(capacities)) {
    left.set(name, parseQuantity(capacity.value).nanos - (usage.consumed.get(name) ?? 0n));
  }
  const isOpen = !usage.dedicated && (isShareable(device) || !usage.shares);
  return Object.entries(capacities).map(([name, capacity]) => {
    const value = parseQuantity(capacity.value);
    const free = quantityLike(value, usage.dedicated ? 0n : left.get(name));
    const used = quantityLike(value, value.nanos - free.nanos);
    const largest = isOpen ? largestRequest(capacities, name, left) : null;
    return { name, value, used, free, largest, policy: capacity.requestPolicy };
  });
}

/** One of free, in use (given out whole), shared, full (no further share fits, however little is asked for). */
export function stateOf(device, usage, reports) {
  if (!usage.dedicated && !usage.shares) return "free";
  if (usage.dedicated || !isShareable(device)) return "in use";
  const isFull =
    reports.some(({ largest }) => largest === null) ||
    (reports.length > 0 && reports.every(({ free, value }) => free.nanos === 0n && value.nanos !== 0n));
  return isFull ? "full" : "shared";
}

/** Everything about one device. */
export function deviceReport(device, holdings, ruleTaints) {
  const usage = usageOf(holdings);
  const capacities = capacityReports(device, usage);
  return {
    name: device.name,
    device,
    state: stateOf(device, usage, capacities),
    isShareable: isShareable(device),
    capacities,
    holdings: [...holdings].sort(byClaim),
    taints: [...(device.taints ?? []), ...ruleTaints],
  };
}

/** A device that claims hold and no slice has. */
export function goneReport(name, holdings) {
  return {
    name,
    device: { name },
    state: "gone",
    isShareable: false,
    capacities: [],
    holdings: [...holdings].sort(byClaim),
    taints: [],
  };
}

function byClaim(one, other) {
  return compared(one.claim.namespace, other.claim.namespace) || compared(one.claim.name, other.claim.name);
}

export function compared(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}
