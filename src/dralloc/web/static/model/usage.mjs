// The use of every device: capacities, allocations by claim, and what is available.
//
// Claims are namespaced and slices do not show use, so neither alone shows what a device has left. This joins them.
// The same rules as `dralloc.answers.usage_report`; a test compares the two on random clusters.

import { Room } from "./headroom.mjs";
import { compared } from "./names.mjs";
import { productOf } from "./product.mjs";
import { parseQuantity, quantityLike } from "./quantity.mjs";

const UNUSED = Object.freeze({ dedicated: 0, shares: 0, consumed: new Map(), entries: new Map() });

/**
 * The use of one device: allocated as a whole, shares, the total consumption of the shares, in nanos, and the number of shares with
 * an entry for each capacity.
 */
function usageOf(holdings) {
  if (!holdings.length) return UNUSED;
  const usage = { dedicated: 0, shares: 0, consumed: new Map(), entries: new Map() };
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
      usage.entries.set(name, (usage.entries.get(name) ?? 0) + 1);
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
  const isPlain = !device.requestPolicies && !device.remainder;
  if (usage !== UNUSED || !device.capacity || !isPlain) return workedOut(device, usage, isOpen);
  const known = isOpen ? unused : unusedBlocked;
  let room = known.get(device.capacity);
  if (!room) known.set(device.capacity, (room = workedOut(device, usage, isOpen)));
  return room;
}

function workedOut(device, usage, isOpen) {
  const room = new Room(device, usage);
  const hasRoom = hasRoomFor(room, usage);
  const reports = Object.keys(room.capacities).map((name) => new CapacityReport(room, name, usage, isOpen && hasRoom));
  return { reports, hasRoom };
}

/** True if a request for something fits, or one that names no amounts, or one for nothing where a policy names zero. */
function hasRoomFor(room, usage) {
  if (!room.acceptsSomething()) return false;
  const entries = Object.entries(room.capacities);
  const isExhausted =
    entries.length > 0 && entries.every(([name, { value }]) => room.left.get(name) === 0n && parseQuantity(value).nanos !== 0n);
  return !(usage.shares && isExhausted) || room.fitsUnasked() || room.acceptsNothing();
}

class CapacityReport {
  constructor(room, name, usage, isOpen) {
    this.name = name;
    this.policy = room.capacities[name].requestPolicy;
    this.value = parseQuantity(room.capacities[name].value);
    const left = room.left.get(name);
    this.used = usage.dedicated ? this.value : quantityLike(this.value, this.value.nanos - left);
    this._largest = () => (isOpen ? room.largestRequest(name) : null);
    // What claims can get: nothing of a device that is full or blocked, nor of a capacity that is not consumable.
    const isAvailable = isOpen && (!room.dependsOnShares || this.largest !== null);
    this.free = quantityLike(this.value, isAvailable ? left : 0n);
  }

  /** The largest request that fits, after rounding; null if none fits. Lazy, because few devices are displayed. */
  get largest() {
    if (typeof this._largest === "function") this._largest = this._largest();
    return this._largest;
  }
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
    product: productOf(device),
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
    product: "",
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
