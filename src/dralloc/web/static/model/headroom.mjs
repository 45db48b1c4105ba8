// The largest request that still fits on a device, after rounding to the policy (KEP-5075).
//
// The same rules as `dralloc.allocator.headroom`; a test compares the two.

import { NANOS, dividedDown, dividedUp, parseQuantity, quantityLike } from "./quantity.mjs";

const NANOS_PER_MILLI = 1_000_000n;
const INT64_MAX = 2n ** 63n - 1n;

/**
 * The largest request for one capacity of a device, with minimal requests for the others.
 * `left` is what is left of each, in nanos. Null if no request fits.
 */
export function largestRequest(capacities, name, left) {
  for (const [other, capacity] of Object.entries(capacities)) {
    if (other !== name && least(capacity.requestPolicy) > left.get(other)) return null;
  }
  const capacity = capacities[name];
  const value = parseQuantity(capacity.value);
  const have = left.get(name) < value.nanos ? left.get(name) : value.nanos;
  for (const amount of amountsWithin(capacity, value, have)) {
    if (amount.nanos >= 0n && fits(capacity, value, amount.nanos, left.get(name))) return amount;
  }
  return null;
}

/** Returns the smallest possible charge, in nanos. */
function least(policy) {
  if (!policy) return 0n;
  if (policy.validRange) return policy.validRange.min !== undefined ? parseQuantity(policy.validRange.min).nanos : 0n;
  const values = (policy.validValues ?? []).map((text) => parseQuantity(text).nanos);
  return values.reduce((lowest, nanos) => (nanos < lowest ? nanos : lowest), values[0] ?? 0n);
}

/** Returns the candidate amounts, largest first. */
function amountsWithin(capacity, value, have) {
  const policy = capacity.requestPolicy;
  if (policy?.validRange) return amountsInRange(policy.validRange, value, have);
  if (policy?.validValues?.length) {
    return sortedDown(policy.validValues.map(parseQuantity).filter(({ nanos }) => nanos <= have));
  }
  return [quantityLike(value, have)];
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
  return [...sortedDown(amounts), start];
}

/** True if a request for the amount is valid and fits into what is left. */
function fits(capacity, value, nanos, left) {
  const charge = chargeFor(capacity.requestPolicy, nanos);
  return charge !== null && charge <= value.nanos && charge <= left;
}

/** Returns the charge for the amount, in nanos; null if the policy does not allow it. */
function chargeFor(policy, nanos) {
  const charge = roundedUp(policy, nanos);
  return charge !== null && allows(policy, charge) ? charge : null;
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
