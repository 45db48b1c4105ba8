// The use of every device: capacities, allocations by claim, and what is available.
//
// Claims are namespaced and slices do not show use, so neither alone shows what a device has left. This joins them.
// The same rules as `dralloc.whatif.usage_report`; a test compares the two on random clusters.

import { largestRequest } from "./headroom.mjs";
import { compared } from "./names.mjs";
import { parseQuantity, quantityLike } from "./quantity.mjs";

const UNUSED = Object.freeze({ dedicated: 0, shares: 0, consumed: new Map() });

/** The use of one device: allocated as a whole, shares, and the total consumption of the shares, in nanos. */
function usageOf(holdings) {
  if (!holdings.length) return UNUSED;
  const usage = { dedicated: 0, shares: 0, consumed: new Map() };
  for (const { result } of holdings) {
    // Admin access consumes nothing.
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

function isShareable(device) {
  return Boolean(device.allowMultipleAllocations);
}

// Cached by capacities for unused devices, because most are alike.
const unused = new WeakMap();

/** Returns the used and free amount of each capacity. */
function capacityReports(device, usage) {
  if (usage !== UNUSED || !device.capacity) return workedOut(device, usage);
  let reports = unused.get(device.capacity);
  if (!reports) unused.set(device.capacity, (reports = workedOut(device, usage)));
  return reports;
}

function workedOut(device, usage) {
  const isOpen = !usage.dedicated && (isShareable(device) || !usage.shares);
  return Object.keys(device.capacity ?? {}).map((name) => new CapacityReport(device.capacity, name, usage, isOpen));
}

class CapacityReport {
  constructor(capacities, name, usage, isOpen) {
    this.name = name;
    this.policy = capacities[name].requestPolicy;
    this.value = parseQuantity(capacities[name].value);
    this.free = quantityLike(this.value, usage.dedicated ? 0n : this.value.nanos - (usage.consumed.get(name) ?? 0n));
    this.used = quantityLike(this.value, this.value.nanos - this.free.nanos);
    this._largest = () => (isOpen ? largestRequest(capacities, name, leftOf(capacities, usage)) : null);
  }

  /** The largest request that fits, after rounding; null if none fits. Lazy, because few devices are displayed. */
  get largest() {
    if (typeof this._largest === "function") this._largest = this._largest();
    return this._largest;
  }
}

function leftOf(capacities, usage) {
  const entries = Object.entries(capacities);
  return new Map(entries.map(([name, { value }]) => [name, parseQuantity(value).nanos - (usage.consumed.get(name) ?? 0n)]));
}

/** One of free, in use (allocated as a whole), shared, full (not even the smallest share fits). */
function stateOf(device, usage, reports) {
  if (!usage.dedicated && !usage.shares) return "free";
  if (usage.dedicated || !isShareable(device)) return "in use";
  const isFull =
    reports.some(({ largest }) => largest === null) ||
    (reports.length > 0 && reports.every(({ free, value }) => free.nanos === 0n && value.nanos !== 0n));
  return isFull ? "full" : "shared";
}

/** Everything about one device; `placed` selects its nodes. */
export function deviceReport(device, placed, holdings, ruleTaints) {
  const usage = usageOf(holdings);
  const capacities = capacityReports(device, usage);
  return {
    name: device.name,
    device,
    placed,
    state: stateOf(device, usage, capacities),
    isShareable: isShareable(device),
    capacities,
    holdings: holdings.length > 1 ? [...holdings].sort(byClaim) : holdings,
    taints: device.taints?.length ? [...device.taints, ...ruleTaints] : ruleTaints,
  };
}

/** A device that claims have and no slice publishes. */
export function goneReport(name, holdings) {
  return {
    name,
    device: { name },
    placed: null,
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
