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
    if (other !== name && !accepts(capacity, left.get(other))) return null;
  }
  const capacity = capacities[name];
  const value = parseQuantity(capacity.value);
  const have = left.get(name) < value.nanos ? left.get(name) : value.nanos;
  for (const amount of amountsWithin(capacity, value, have)) {
    if (amount.nanos >= 0n && fits(capacity, amount.nanos, left.get(name))) return amount;
  }
  return null;
}

/** True if some request takes no more than is left, in nanos: one without an amount, or with the least amount. */
export function accepts(capacity, left) {
  const valid = (capacity.requestPolicy?.validValues ?? []).map((text) => parseQuantity(text).nanos);
  return [null, 0n, ...valid].some((nanos) => fits(capacity, nanos, left));
}

/** True if a request that names no amounts takes no more than is left of each capacity. */
export function fitsUnasked(capacities, left) {
  return Object.entries(capacities).every(([name, capacity]) => fits(capacity, null, left.get(name)));
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

/** True if a request for the amount, or without one (null), is valid and fits into what is left. */
function fits(capacity, nanos, left) {
  const value = parseQuantity(capacity.value).nanos;
  const charge = chargeFor(capacity.requestPolicy, nanos, value);
  return charge !== null && charge <= value && charge <= left;
}

/** Returns the charge for the amount, in nanos; null if the policy does not allow it. */
function chargeFor(policy, nanos, value) {
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
