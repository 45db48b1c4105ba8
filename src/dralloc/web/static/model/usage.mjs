// What there is of every device, who holds how much of it, and what could still be had.
//
// Claims are namespaced, so nobody who looks at claims sees what a device has left; slices do not say it either. This joins
// the two. The same rules as `dralloc.whatif.usage_report`; a test compares the two on random clusters.

import { largestRequest } from "./headroom.mjs";
import { compared } from "./names.mjs";
import { parseQuantity, quantityLike } from "./quantity.mjs";

const UNUSED = Object.freeze({ dedicated: 0, shares: 0, consumed: new Map() });

/** How one device is used: given out whole, shares, and what all shares together consume, in nanos. */
function usageOf(holdings) {
  if (!holdings.length) return UNUSED;
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

function isShareable(device) {
  return Boolean(device.allowMultipleAllocations);
}

// By what it has, for devices of which nothing is used: most are like thousands of others.
const unused = new WeakMap();

/** What is used and left of each capacity. */
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

  /** The most that one more request could get, after rounding; null where none would fit. Few devices are ever asked. */
  get largest() {
    if (typeof this._largest === "function") this._largest = this._largest();
    return this._largest;
  }
}

function leftOf(capacities, usage) {
  const entries = Object.entries(capacities);
  return new Map(entries.map(([name, { value }]) => [name, parseQuantity(value).nanos - (usage.consumed.get(name) ?? 0n)]));
}

/** One of free, in use (given out whole), shared, full (no further share fits, however little is asked for). */
function stateOf(device, usage, reports) {
  if (!usage.dedicated && !usage.shares) return "free";
  if (usage.dedicated || !isShareable(device)) return "in use";
  const isFull =
    reports.some(({ largest }) => largest === null) ||
    (reports.length > 0 && reports.every(({ free, value }) => free.nanos === 0n && value.nanos !== 0n));
  return isFull ? "full" : "shared";
}

/** Everything about one device; `placed` says which nodes it is for. */
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

/** A device that claims hold and no slice has. */
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
