// The use of every device: capacities, allocations by claim, and what is available.
//
// Claims are namespaced and slices do not show use, so neither alone shows what a device has left. This joins them.
// The same rules as `dralloc.whatif.usage_report`; a test compares the two on random clusters.

import { accepts, fitsUnasked, largestRequest } from "./headroom.mjs";
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
const unusedBlocked = new WeakMap();

/** Returns the used and free amount of each capacity, and whether they have room for a request. */
function roomOf(device, usage, isOpen) {
  if (usage !== UNUSED || !device.capacity) return workedOut(device, usage, isOpen);
  const known = isOpen ? unused : unusedBlocked;
  let room = known.get(device.capacity);
  if (!room) known.set(device.capacity, (room = workedOut(device, usage, isOpen)));
  return room;
}

function workedOut(device, usage, isOpen) {
  const capacities = device.capacity ?? {};
  const left = leftOf(capacities, usage);
  const hasRoom = hasRoomFor(capacities, usage, left);
  const reports = Object.keys(capacities).map((name) => new CapacityReport(capacities, name, usage, left, isOpen && hasRoom));
  return { reports, hasRoom };
}

/** True if a request for something, or one that names no amounts, takes no more than is left. */
function hasRoomFor(capacities, usage, left) {
  const entries = Object.entries(capacities);
  if (!entries.every(([name, capacity]) => accepts(capacity, left.get(name)))) return false;
  const isExhausted = entries.length > 0 && entries.every(([name, { value }]) => left.get(name) === 0n && parseQuantity(value).nanos !== 0n);
  return !(usage.shares && isExhausted) || fitsUnasked(capacities, left);
}

class CapacityReport {
  constructor(capacities, name, usage, left, isOpen) {
    this.name = name;
    this.policy = capacities[name].requestPolicy;
    this.value = parseQuantity(capacities[name].value);
    this.used = usage.dedicated ? this.value : quantityLike(this.value, this.value.nanos - left.get(name));
    // What claims can get: nothing of a device that is full or blocked.
    this.free = quantityLike(this.value, isOpen ? left.get(name) : 0n);
    this._largest = () => (isOpen ? largestRequest(capacities, name, left) : null);
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

const NO_AMOUNT = Object.freeze({ cause: "request policy", reason: "its request policy allows no amount that it has" });

/**
 * Everything about one device; `placed` selects its nodes, `block` is what blocks it on all of them, or null.
 * The state is free, shared (another share fits), full (allocated whole, or no share fits) or blocked.
 */
export function deviceReport(device, placed, holdings, taints, block) {
  const usage = usageOf(holdings);
  const isWhole = usage.dedicated > 0 || (usage.shares > 0 && !isShareable(device));
  const { reports, hasRoom } = roomOf(device, usage, !block && !isWhole);
  const isFull = isWhole || (usage.shares > 0 && !hasRoom);
  const blocked = isFull ? null : (block ?? (hasRoom ? null : NO_AMOUNT));
  return {
    name: device.name,
    device,
    placed,
    state: isFull ? "full" : blocked ? "blocked" : usage.shares ? "shared" : "free",
    block: blocked,
    isShareable: isShareable(device),
    capacities: reports,
    holdings: holdings.length > 1 ? [...holdings].sort(byClaim) : holdings,
    taints,
  };
}

/** A device that claims have and no slice publishes. */
export function goneReport(name, holdings) {
  return {
    name,
    device: { name },
    placed: null,
    state: "gone",
    block: null,
    isShareable: false,
    capacities: [],
    holdings: [...holdings].sort(byClaim),
    taints: [],
  };
}

function byClaim(one, other) {
  return compared(one.claim.namespace, other.claim.namespace) || compared(one.claim.name, other.claim.name);
}
