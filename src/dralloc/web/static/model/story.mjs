// The story of a claim: requested, rounded and allocated amounts, devices, and consumers.

import { capacitiesOf } from "./headroom.mjs";
import { parseQuantity } from "./quantity.mjs";
import { nodesOf, resultsOf } from "./world.mjs";

/** The state in the words of `kubectl get resourceclaims`: pending, or some of deleted, allocated and reserved. */
export function claimState(claim) {
  const states = claim.deletionTimestamp ? ["deleted"] : [];
  if (claim.status.allocation) states.push("allocated");
  if (claim.status.allocation && claim.status.reservedFor?.length) states.push("reserved");
  return states.join(",") || "pending";
}

export function storyOf(claim, world) {
  const results = resultsOf(claim);
  return {
    claim,
    state: claimState(claim),
    nodes: nodesOf(claim),
    requests: (claim.spec.devices?.requests ?? []).map((request) => requestStory(request, claim, world)),
    constraints: (claim.spec.devices?.constraints ?? []).map(constraintText),
    devices: results.map((result) => ({ result, found: world.device(result.driver, result.pool, result.device) })),
    consumers: claim.status.reservedFor ?? [],
    isForAnyPod: Boolean(claim.status.allocation?.reservedForAnyPod),
    // KEP-5194: the workload that the claim is reserved for.
    workload: claim.spec.reservedFor ?? null,
    reports: claim.status.devices ?? [],
  };
}

// --- Requests ---------------------------------------------------------------------------------------------------

function requestStory(request, claim, world) {
  const results = resultsOf(claim).filter(({ request: name }) => name.split("/")[0] === request.name);
  const chosen = results[0]?.request.split("/")[1] ?? null;
  const hasAlternatives = Boolean(request.firstAvailable?.length);
  const wishes = hasAlternatives ? request.firstAvailable : [{ ...request.exactly, name: null }];
  const place = wishes.findIndex(({ name }) => name === chosen);
  return {
    name: request.name,
    hasAlternatives,
    wishes: wishes.map((wish, index) => ({
      ...wishText(wish),
      name: wish.name,
      fate: hasAlternatives ? fateOf(index, results.length ? place : -1) : null,
    })),
    given: results.map((result) => givenStory(result, wishes[Math.max(place, 0)], world)),
  };
}

/** Returns the outcome for the alternative at `index`, given the chosen one. */
function fateOf(index, chosen) {
  if (chosen < 0) return "open";
  if (index === chosen) return "chosen";
  return index < chosen ? "passed over" : "not needed";
}

function wishText(wish) {
  return {
    deviceClass: wish.deviceClassName,
    count: countText(wish),
    isAdmin: Boolean(wish.adminAccess),
    selectors: (wish.selectors ?? []).map(({ cel }) => cel?.expression ?? ""),
    capacity: Object.entries(wish.capacity?.requests ?? {}),
    limits: Object.entries(wish.capacity?.limits ?? {}),
    isTotal: wish.allocationMode === "AggregatedCapacity",
    preference: wish.devicePreference ?? null,
  };
}

// --- Allocated ----------------------------------------------------------------------------------------------------

function givenStory(result, wish, world) {
  const found = world.device(result.driver, result.pool, result.device);
  const isShare = result.shareID !== undefined && result.shareID !== null;
  const asked = wish?.capacity?.requests ?? {};
  const consumed = result.consumedCapacity ?? {};
  return {
    result,
    found,
    isShare,
    amounts: Object.keys(isShare ? consumed : asked).map((name) => amountStory(name, asked[name], consumed[name], found, isShare)),
    limits: Object.entries(result.capacityLimits ?? {}),
  };
}

/** One capacity of one device: requested, rounding rule, allocated. */
function amountStory(name, asked, given, found, isShare) {
  const capacity = found ? capacitiesOf(found.device.device)[name] : undefined;
  const policy = capacity?.requestPolicy;
  return {
    name,
    asked: asked ?? null,
    given: given ?? null,
    total: capacity?.value ?? null,
    rule: capacity ? policyText(policy, capacity.value) : "",
    why: isShare ? whyAmount(asked, given, policy) : "the whole device",
  };
}

function countText(wish) {
  if (wish.allocationMode === "All") return "all";
  return wish.allocationMode === "AggregatedCapacity" ? `up to ${wish.count ?? 32}` : (wish.count ?? 1);
}

function whyAmount(asked, given, policy) {
  if (policy?.zeroConsumption) return "only compared, not consumed";
  const amount = parseQuantity(given).nanos;
  if (asked === undefined) {
    const isDefault = policy?.default !== undefined && amount === parseQuantity(policy.default).nanos;
    return isDefault ? "default, nothing requested" : "all, nothing requested";
  }
  const difference = amount - parseQuantity(asked).nanos;
  return difference > 0n ? "rounded up" : "as requested";
}

const STRATEGIES = {
  ConsumedOrNever: "consumed by all shares or by none, as the first one decides",
  BlockOrShare: "all of it for a first share without a request",
};

/** Returns the amounts that a capacity's policy allows, as text. */
export function policyText(policy, value) {
  if (!policy) return `any amount up to ${value}`;
  if (policy.zeroConsumption) return `compared with ${value}, not consumed`;
  const said = STRATEGIES[policy.strategy] ? [STRATEGIES[policy.strategy]] : [];
  const range = policy.validRange;
  if (range) {
    if (range.min !== undefined) said.push(`at least ${range.min}`);
    if (range.step !== undefined) said.push(`in steps of ${range.step}`);
    if (range.max !== undefined) said.push(`at most ${range.max}`);
  } else if (policy.validValues?.length) said.push(`one of ${policy.validValues.join(", ")}`);
  if (policy.default !== undefined && policy.default !== null) said.push(`default ${policy.default}`);
  return said.join(", ") || `any amount up to ${value}`;
}

// --- The rest -----------------------------------------------------------------------------------------------------

function constraintText({ requests = [], matchAttribute, distinctAttribute, distinctAttributes = [] }) {
  const which = requests.length ? `devices of ${requests.join(", ")}` : "all devices";
  if (distinctAttributes.length) return { text: `different in at least one attribute on ${which}:`, attribute: distinctAttributes.join(", ") };
  return matchAttribute
    ? { text: `same value on ${which}:`, attribute: matchAttribute }
    : { text: `different values on ${which}:`, attribute: distinctAttribute ?? "" };
}
