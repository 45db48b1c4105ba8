import assert from "node:assert/strict";
import test from "node:test";

import { claimState, policyText, storyOf } from "../../../src/dralloc/web/static/model/story.mjs";
import { World } from "../../../src/dralloc/web/static/model/world.mjs";

const POLICY = { default: "1G", validRange: { min: "1G", step: "500M", max: "8G" } };

function worldWith(...claims) {
  const world = new World();
  const devices = [{ name: "eth0", allowMultipleAllocations: true, capacity: { bandwidth: { value: "10G", requestPolicy: POLICY } } }, { name: "card" }];
  world.put("slices", { metadata: { name: "s" }, spec: { driver: "d", nodeName: "n", pool: { name: "p", generation: 1, resourceSliceCount: 1 }, devices } });
  for (const claim of claims) world.put("claims", claim);
  return world;
}

function claim(request, results, more = {}) {
  return {
    metadata: { name: "c", namespace: "ns", uid: "u" },
    spec: { devices: { requests: [request] } },
    status: results ? { allocation: { devices: { results: results.map((result) => ({ driver: "d", pool: "p", ...result })) } }, ...more } : {},
  };
}

function story(...parts) {
  const world = worldWith(claim(...parts));
  return storyOf(world.claims.get("ns/c"), world);
}

for (const { id, asked, given, why } of [
  { id: "more than was asked was rounded up", asked: { bandwidth: "1200M" }, given: "1500M", why: "rounded up" },
  { id: "the same in another notation is as requested", asked: { bandwidth: "2000M" }, given: "2G", why: "as requested" },
  { id: "nothing asked is the default", asked: undefined, given: "1G", why: "default, nothing requested" },
]) {
  test(id, () => {
    const request = { name: "nic", exactly: { deviceClassName: "x", ...(asked && { capacity: { requests: asked } }) } };
    const [{ given: [{ amounts: [amount] }] }] = story(request, [{ request: "nic", device: "eth0", shareID: "1", consumedCapacity: { bandwidth: given } }]).requests;
    assert.equal(amount.why, why);
    assert.equal(amount.given, given);
    assert.equal(amount.rule, "at least 1G, in steps of 500M, at most 8G, default 1G");
  });
}

const ALTERNATIVES = { name: "gpu", firstAvailable: [{ name: "a", deviceClassName: "x" }, { name: "b", deviceClassName: "x" }, { name: "c", deviceClassName: "x" }] };

test("of alternatives, those before the chosen one did not fit, and those after it were not needed", () => {
  const [request] = story(ALTERNATIVES, [{ request: "gpu/b", device: "card" }]).requests;
  assert.deepEqual(request.wishes.map(({ fate }) => fate), ["passed over", "chosen", "not needed"]);
  assert.equal(request.given[0].isShare, false);
});

test("of alternatives of a claim that waits, all are open", () => {
  assert.deepEqual(story(ALTERNATIVES, null).requests[0].wishes.map(({ fate }) => fate), ["open", "open", "open"]);
});

test("a device that no slice has any more is found as gone", () => {
  const [device] = story({ name: "gpu", exactly: { deviceClassName: "x" } }, [{ request: "gpu", device: "lost" }]).devices;
  assert.equal(device.found.device.state, "gone");
});

test("a claim's state", () => {
  const states = [
    [{ spec: {}, status: {} }, "pending"],
    [{ spec: {}, status: { allocation: {} } }, "allocated"],
    [{ spec: {}, status: { allocation: {}, reservedFor: [{}] } }, "allocated,reserved"],
    [{ spec: {}, status: { allocation: { reservedForAnyPod: true } } }, "allocated"],
    [{ spec: {}, status: {}, deletionTimestamp: "2026-01-01T00:00:00Z" }, "deleted"],
    [{ spec: {}, status: { allocation: {}, reservedFor: [{}] }, deletionTimestamp: "2026-01-01T00:00:00Z" }, "deleted,allocated,reserved"],
  ];
  for (const [each, state] of states) assert.equal(claimState(each), state);
});

test("policies in words", () => {
  assert.equal(policyText(undefined, "10G"), "any amount up to 10G");
  assert.equal(policyText({ default: "1", validValues: ["1", "3"] }, "6"), "one of 1, 3, default 1");
});

test("policies that Kubernetes lacks are told in words", () => {
  assert.equal(policyText({ zeroConsumption: true }, "10G"), "compared with 10G, not consumed");
  assert.equal(policyText({ strategy: "BlockOrShare", default: "1G" }, "10G"), "all of it for a first share without a request, default 1G");
  assert.equal(policyText({ strategy: "AlwaysConsumed" }, "10G"), "any amount up to 10G");
});

test("a total and limits are part of the story", () => {
  const capacity = { requests: { bandwidth: "12G" } };
  const total = { name: "nic", exactly: { deviceClassName: "x", allocationMode: "AggregatedCapacity", count: 4, capacity } };
  const { requests: [{ wishes: [wish] }] } = story(total, null);
  assert.deepEqual([wish.count, wish.isTotal], ["up to 4", true]);
  const bursting = { name: "nic", exactly: { deviceClassName: "x", devicePreference: "MostAvailable", capacity: { requests: { bandwidth: "1G" }, limits: { bandwidth: "5G" } } } };
  const result = { request: "nic", device: "eth0", shareID: "1", consumedCapacity: { bandwidth: "1G" }, capacityLimits: { bandwidth: "5G" } };
  const [told] = story(bursting, [result]).requests;
  assert.deepEqual([told.wishes[0].limits, told.wishes[0].preference, told.given[0].limits], [[["bandwidth", "5G"]], "MostAvailable", [["bandwidth", "5G"]]]);
});
