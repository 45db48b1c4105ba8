import assert from "node:assert/strict";
import test from "node:test";

import { grouped, groupingLabels, loadOf, nodeNames } from "../../../src/dralloc/web/static/model/grouping.mjs";
import { isFull, loadOfPlace, placesOf, sharedWith } from "../../../src/dralloc/web/static/model/places.mjs";
import { World } from "../../../src/dralloc/web/static/model/world.mjs";

const slice = (name, node, devices, generation = 1) => ({
  metadata: { name },
  spec: { driver: "d", nodeName: node, pool: { name: node, generation, resourceSliceCount: 1 }, devices: devices.map((each) => ({ name: each })) },
});
const claim = (name, node, ...devices) => ({
  metadata: { name, namespace: "ns", uid: name },
  spec: {},
  status: { allocation: { devices: { results: devices.map((device) => ({ request: "r", driver: "d", pool: node, device })) } } },
});

test("nodes are those that are registered and those that only slices know, in the order of their numbers", () => {
  const world = new World();
  for (const name of ["node-10", "node-2"]) world.put("nodes", { metadata: { name } });
  world.put("slices", slice("s", "node-3", ["a"]));
  assert.deepEqual(nodeNames(world), ["node-2", "node-3", "node-10"]);
  world.remove("nodes", "node-2");
  world.remove("slices", "s");
  assert.deepEqual(nodeNames(world), ["node-10"]);
});

test("what a claim takes and gives back shows in the sums", () => {
  const world = new World();
  world.put("slices", slice("s", "n", ["a", "b"]));
  const states = () => grouped(world)[0].states;
  assert.equal(states().free, 2);
  world.put("claims", claim("c", "n", "a"));
  assert.deepEqual([states().free, states().full], [1, 1]);
  assert.equal(loadOf(world.reportsOfNode("n")), 0.5);
  world.put("claims", claim("c", "n", "b"));
  assert.deepEqual(world.reportsOfNode("n")[0].devices.map(({ state }) => state), ["free", "full"]);
  world.remove("claims", "ns/c");
  assert.equal(states().free, 2);
});

test("a device that is held and gone is kept until no claim holds it", () => {
  const world = new World();
  world.put("slices", slice("s", "n", ["a"]));
  world.put("claims", claim("c", "n", "a"));
  world.remove("slices", "s");
  assert.equal(grouped(world)[0].states.gone, 1);
  world.remove("claims", "ns/c");
  assert.deepEqual(grouped(world), []);
  assert.equal(world.pools.size, 0);
});

test("a newer generation takes the place of the older", () => {
  const world = new World();
  world.put("slices", slice("old", "n", ["a", "b"]));
  world.put("slices", slice("new", "n", ["c"], 2));
  assert.deepEqual(world.reportsOfNode("n")[0].devices.map(({ name }) => name), ["c"]);
});

test("a slice that moves to another pool leaves the first", () => {
  const world = new World();
  world.put("slices", slice("s", "n", ["a"]));
  world.put("slices", slice("s", "m", ["a"]));
  assert.deepEqual(world.reportsOfNode("n"), []);
  assert.equal(world.reportsOfNode("m").length, 1);
  assert.equal(world.pools.size, 1);
});

test("nodes are put in groups by the labels that divide them", () => {
  const world = new World();
  for (const [name, zone] of [["n1", "a"], ["n2", "b"], ["n3", "a"]]) {
    world.put("nodes", { metadata: { name, labels: { zone, "kubernetes.io/os": "linux" } } });
    world.put("slices", slice(name, name, ["x", "y"]));
  }
  world.put("slices", slice("unknown", "n4", ["x"]));
  assert.deepEqual(groupingLabels(world), ["zone"], "a label that all have alike divides nothing");
  assert.deepEqual(grouped(world, "zone").map(({ name, devices }) => [name, devices]), [["a", 4], ["b", 2], ["without this label", 1]]);
});

test("a pool of several nodes is a place of its own, and each node sees what is for it", () => {
  const world = new World();
  for (const [name, zone] of [["n1", "a"], ["n2", "b"]]) world.put("nodes", { metadata: { name, labels: { zone } } });
  const inZone = (zone) => ({ nodeSelectorTerms: [{ matchExpressions: [{ key: "zone", operator: "In", values: [zone] }] }] });
  const devices = [{ name: "first", nodeName: "n1" }, { name: "zone-b", nodeSelector: inZone("b") }, { name: "every", allNodes: true }];
  const pool = { name: "fabric", generation: 1, resourceSliceCount: 1 };
  world.put("slices", { metadata: { name: "s" }, spec: { driver: "d", perDeviceNodeSelection: true, pool, devices } });
  assert.deepEqual(placesOf(world).map(({ title, path }) => [title, path[0]]), [["fabric", "pools"], ["n1", "nodes"], ["n2", "nodes"]]);
  const seen = (node) => sharedWith(world, node).flatMap((report) => report.devices.map(({ name }) => name));
  assert.deepEqual(seen("n1"), ["first", "every"]);
  assert.deepEqual(seen("n2"), ["zone-b", "every"]);
  assert.deepEqual(seen("unknown"), []);
});

test("a node is full only when all its devices are, whatever the percentage", () => {
  const world = new World();
  const devices = [{ name: "a", allowMultipleAllocations: true, capacity: { memory: { value: "80Gi" } } }];
  world.put("slices", { metadata: { name: "s" }, spec: { driver: "d", nodeName: "n", pool: { name: "n", generation: 1, resourceSliceCount: 1 }, devices } });
  const held = (amount) => ({
    metadata: { name: "c", namespace: "ns", uid: "c" },
    spec: {},
    status: { allocation: { devices: { results: [{ request: "r", driver: "d", pool: "n", device: "a", shareID: "s", consumedCapacity: { memory: amount } }] } } },
  });
  const [place] = placesOf(world);
  for (const [amount, want] of [["81919Mi", false], ["80Gi", true]]) {
    world.put("claims", held(amount));
    assert.equal(isFull(place), want, amount);
    assert.equal(loadOfPlace(place) === 1, want);
  }
});
