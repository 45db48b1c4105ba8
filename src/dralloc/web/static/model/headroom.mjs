// The largest request that still fits on a device, after rounding to the policy (KEP-5075).
//
// The same rules as `dralloc.devices.allocator.headroom`; a test compares the two.

import { NANOS, dividedDown, dividedUp, parseQuantity, quantityLike } from "./quantity.mjs";

const NANOS_PER_MILLI = 1_000_000n;
const INT64_MAX = 2n ** 63n - 1n;

const ALWAYS_CONSUMED = "AlwaysConsumed";
const CONSUMED_OR_NEVER = "ConsumedOrNever";
const BLOCK_OR_SHARE = "BlockOrShare";

/**
 * What the living shares of a device leave: its capacities with the policies that apply to them, and what is left of each, in nanos.
 * `dependsOnShares` is true where a strategy or the remainder makes a share depend on the others.
 */
export class Room {
  constructor(device, usage) {
    this.capacities = capacitiesOf(device);
    const entries = Object.entries(this.capacities);
    this.left = new Map(entries.map(([name, { value }]) => [name, parseQuantity(value).nanos - (usage.consumed.get(name) ?? 0n)]));
    this.dependsOnShares =
      Boolean(device.allowMultipleAllocations) && (device.remainder === "GiveToLast" || entries.some(([, each]) => strategyOf(each) !== ALWAYS_CONSUMED));
    this._usage = usage;
  }

  /** The largest request for one capacity, with minimal requests for the others. Null if no request fits. */
  largestRequest(name) {
    for (const other of Object.keys(this.capacities)) {
      if (other !== name && !this._accepts(other)) return null;
    }
    const capacity = this.capacities[name];
    const value = parseQuantity(capacity.value);
    const left = capacity.requestPolicy?.zeroConsumption ? value.nanos : this.left.get(name);
    for (const amount of amountsWithin(capacity, value, left < value.nanos ? left : value.nanos)) {
      if (amount.nanos >= 0n && this._fits(name, amount.nanos)) return amount;
    }
    return null;
  }

  /** True if some request takes no more than is left of each capacity. */
  acceptsSomething() {
    return Object.keys(this.capacities).every((name) => this._accepts(name));
  }

  /** True if a request that names no amounts takes no more than is left of each capacity. */
  fitsUnasked() {
    return Object.keys(this.capacities).every((name) => this._fits(name, null));
  }

  /** True if the policy of a capacity names zero as an amount, and such a request fits. */
  acceptsNothing() {
    return Object.entries(this.capacities).some(([name, { requestPolicy }]) => namesZero(requestPolicy) && this._fits(name, 0n));
  }

  /** True if a request without an amount, or with the least amount, takes no more than is left. */
  _accepts(name) {
    const valid = (this.capacities[name].requestPolicy?.validValues ?? []).map((text) => parseQuantity(text).nanos);
    // A strategy can exclude an amount of zero.
    return [null, 0n, ...valid, ...(this.dependsOnShares ? [1n] : [])].some((nanos) => this._fits(name, nanos));
  }

  /** True if a request for the amount, or without one (null), is valid and fits beside the living shares. */
  _fits(name, nanos) {
    const capacity = this.capacities[name];
    const value = parseQuantity(capacity.value).nanos;
    const charge = chargeFor(capacity, nanos, value);
    if (charge === null || charge > value) return false;
    const taken = this.dependsOnShares ? this._taken(name, charge, value, nanos !== null) : charge;
    return taken !== null && taken <= this.left.get(name);
  }

  /** What a share takes beside the others, in nanos; null if the strategy excludes it. */
  _taken(name, charge, value, isAsked) {
    const { shares, consumed, entries } = this._usage;
    switch (strategyOf(this.capacities[name])) {
      case CONSUMED_OR_NEVER:
        if (shares && !consumed.has(name)) return isAsked ? null : 0n;
        if (shares && entries.get(name) < shares) return null;
        return shares || isAsked ? charge : 0n;
      case BLOCK_OR_SHARE: {
        const taken = isAsked || shares ? charge : value;
        return taken === 0n ? null : taken;
      }
      default:
        return charge;
    }
  }
}

/** The capacities of a device, with named policies in their places. */
export function capacitiesOf(device) {
  const capacities = device.capacity ?? {};
  if (!device.requestPolicies) return capacities;
  return Object.fromEntries(
    Object.entries(capacities).map(([name, capacity]) => {
      const policy = device.requestPolicies[capacity.requestPolicyName];
      return [name, policy ? { value: capacity.value, requestPolicy: policy } : capacity];
    }),
  );
}

function namesZero(policy) {
  const amounts = [...(policy?.validRange?.min !== undefined ? [policy.validRange.min] : []), ...(policy?.validValues ?? [])];
  return amounts.some((text) => parseQuantity(text).nanos === 0n);
}

function strategyOf(capacity) {
  return capacity.requestPolicy?.strategy || ALWAYS_CONSUMED;
}

/** Returns the candidate amounts, largest first. */
function amountsWithin(capacity, value, have) {
  const policy = capacity.requestPolicy;
  if (!policy?.validRange && !policy?.validValues?.length) return [quantityLike(value, have)];
  const amounts = policy.validRange ? amountsInRange(policy.validRange, value, have) : policy.validValues.map(parseQuantity);
  // The default is allowed, whatever else the policy says.
  if (policy.default !== undefined && policy.default !== null) amounts.push(parseQuantity(policy.default));
  return sortedDown(amounts.filter(({ nanos }) => nanos <= have));
}

function amountsInRange(range, value, have) {
  if (range.max !== undefined) {
    const most = parseQuantity(range.max).nanos;
    have = have < most ? have : most;
  }
  if (range.min === undefined) return [quantityLike(value, have)];
  const start = parseQuantity(range.min);
  if (have < start.nanos) return [];
  const step = range.step !== undefined ? parseQuantity(range.step).nanos : 0n;
  if (step <= 0n) return [quantityLike(value, have), start];
  const amounts = [quantityLike(start, start.nanos + ((have - start.nanos) / step) * step)];
  for (const unit of [NANOS_PER_MILLI, NANOS]) {
    const first = dividedUp(start.nanos, unit);
    const stride = dividedUp(step, unit);
    const steps = dividedDown(dividedDown(have, unit) - first, stride);
    if (steps >= 0n) amounts.push(quantityLike(start, (first + steps * stride) * unit));
  }
  return [...amounts, start];
}

/** Returns the charge for the amount, in nanos; null if the policy does not allow it. */
function chargeFor(capacity, nanos, value) {
  const policy = capacity.requestPolicy;
  if (!policy && capacity.requestPolicyName) return null;
  if (policy?.zeroConsumption) return nanos !== null && nanos > value ? null : 0n;
  if (policy?.strategy === BLOCK_OR_SHARE && nanos !== null && roundedUp(policy, nanos) === 0n) return null;
  const byDefault = policy?.default !== undefined && policy?.default !== null ? parseQuantity(policy.default).nanos : value;
  const charge = nanos === null ? byDefault : roundedUp(policy, nanos);
  return charge !== null && charge >= 0n && allows(policy, charge) ? charge : null;
}

function roundedUp(policy, asked) {
  if (!policy) return asked;
  const range = policy.validRange;
  if (!range) {
    const found = (policy.validValues ?? []).map((text) => parseQuantity(text).nanos).find((nanos) => nanos >= asked);
    return found ?? asked;
  }
  if (range.min === undefined) return asked;
  const start = parseQuantity(range.min).nanos;
  if (asked < start) return start;
  if (range.step === undefined) return asked;
  // Kubernetes counts steps in whole units, rounded up.
  const [first, stride, wanted] = [start, parseQuantity(range.step).nanos, asked].map((amount) => dividedUp(amount, NANOS));
  if (wanted > INT64_MAX || stride <= 0n) return null;
  const rounded = first + dividedUp(wanted - first, stride) * stride;
  return rounded > INT64_MAX ? null : rounded * NANOS;
}

function allows(policy, nanos) {
  if (!policy) return true;
  if (policy.default !== undefined && policy.default !== null && parseQuantity(policy.default).nanos === nanos) return true;
  const range = policy.validRange;
  if (!range) {
    const values = policy.validValues ?? [];
    return values.length === 0 || values.some((text) => parseQuantity(text).nanos === nanos);
  }
  if (range.max !== undefined && nanos > parseQuantity(range.max).nanos) return false;
  if (range.step === undefined || range.min === undefined) return true;
  const stride = dividedUp(parseQuantity(range.step).nanos, NANOS);
  return stride > 0n && (dividedUp(nanos, NANOS) - dividedUp(parseQuantity(range.min).nanos, NANOS)) % stride === 0n;
}

function sortedDown(amounts) {
  return amounts.sort((one, other) => (one.nanos < other.nanos ? 1 : one.nanos > other.nanos ? -1 : 0));
}
