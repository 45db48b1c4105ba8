// Objects that are stored and not of the form of their kind: the page names them, and shows the rest.

import assert from "node:assert/strict";
import { test } from "node:test";

const model = new URL("../../../src/dralloc/web/static/model/", import.meta.url);
const { World } = await import(new URL("world.mjs", model));
const { grouped, nodeNames } = await import(new URL("grouping.mjs", model));
const { foundByName, waysOfClaim } = await import(new URL("found.mjs", model));
const { placesOf, loadOfPlace } = await import(new URL("places.mjs", model));
const { storyOf } = await import(new URL("story.mjs", model));
const { groupedByReason } = await import(new URL("pods.mjs", model));

const result = { request: "r", driver: "d", pool: "p", device: "gpu-0", shareID: "s", consumedCapacity: { memory: "1Gi" } };
const GOOD = {
  nodes: { metadata: { name: "n" }, spec: { taints: [{ key: "k", effect: "NoSchedule" }] }, status: { conditions: [{ type: "Ready", status: "True" }] } },
  slices: {
    metadata: { name: "s" },
    spec: {
      driver: "d", nodeName: "n", pool: { name: "p", generation: 1, resourceSliceCount: 1 },
      devices: [{ name: "gpu-0", allowMultipleAllocations: true, capacity: { memory: { value: "80Gi" } }, attributes: { model: { string: "x" } } }],
    },
  },
  claims: {
    metadata: { name: "c", namespace: "ns", uid: "u" },
    spec: { devices: { requests: [{ name: "r", exactly: { deviceClassName: "gpu" } }], constraints: [{ matchAttribute: "a" }] } },
    status: { allocation: { devices: { results: [result] }, nodeSelector: { nodeSelectorTerms: [] } }, reservedFor: [{ resource: "pods", name: "p", uid: "u" }] },
  },
  pods: {
    metadata: { name: "p", namespace: "ns" },
    spec: { nodeName: "n", resourceClaims: [{ name: "c", resourceClaimName: "c" }] },
    status: { phase: "Running", conditions: [{ type: "PodScheduled", status: "True" }], resourceClaimStatuses: [] },
  },
  classes: { metadata: { name: "gpu" }, spec: {} },
  rules: { metadata: { name: "r" }, spec: { deviceSelector: { driver: "d" }, taint: { key: "k", effect: "NoSchedule" } } },
};
const ODD = ["text", 7, null, [], {}, ["text"], [null], true];

/** Yields copies with one value below `spec` or `status` replaced. */
function* broken(object, path = []) {
  for (const [key, value] of Object.entries(object)) {
    if (path.length === 0 && !["spec", "status"].includes(key)) continue;
    for (const odd of ODD) yield { ...object, [key]: odd };
    if (value instanceof Object && !Array.isArray(value)) for (const inner of broken(value, [...path, key])) yield { ...object, [key]: inner };
    if (Array.isArray(value) && value[0] instanceof Object) for (const inner of broken(value[0], [...path, key])) yield { ...object, [key]: [inner] };
  }
}

/** Everything that views ask of the model. */
function readAll(world) {
  world.settle();
  nodeNames(world);
  grouped(world);
  placesOf(world).forEach(loadOfPlace);
  foundByName(world, ["p"], 10);
  for (const claim of world.claims.values()) [storyOf(claim, world), waysOfClaim(claim, world)];
  groupedByReason([...world.pods.values()]);
}

for (const kind of Object.keys(GOOD)) {
  test(`odd ${kind} do not hide the rest`, () => {
    let count = 0;
    for (const object of broken(GOOD[kind])) {
      const world = new World();
      for (const [each, good] of Object.entries(GOOD)) world.put(each, structuredClone(each === kind ? object : good));
      assert.doesNotThrow(() => readAll(world), JSON.stringify(object));
      for (const each of Object.keys(GOOD)) if (each !== kind) assert.equal(world.keys(each).length, 1, `${each} stay`);
      // It is mended, or goes.
      world.put(kind, structuredClone(GOOD[kind]));
      assert.equal(world.unreadable.size, 0);
      readAll(world);
      world.put(kind, structuredClone(object));
      for (const key of world.keys(kind)) world.remove(kind, key);
      readAll(world);
      count += 1;
    }
    assert.ok(count > 5);
  });
}
