// Where devices are: on a node, or in a pool that several nodes can use.

import { loadOf, nodeNames } from "./grouping.mjs";
import { collator } from "./names.mjs";
import { isPlacedOn } from "./node_selectors.mjs";

class NodePlace {
  constructor(world, name) {
    this._world = world;
    this.node = name;
    this.title = name;
    this.path = ["nodes", name];
  }

  get reports() {
    return this._world.reportsOfNode(this.node);
  }
}

class PoolPlace {
  constructor(pool, reports) {
    this.node = null;
    this.title = pool.name;
    this.driver = pool.driver;
    this.path = ["pools", pool.driver, pool.name];
    this.reports = reports.filter(({ node }) => node === "");
  }
}

const nodePlaces = new WeakMap();
const poolPlaces = new WeakMap();

/** Returns all places: pools of several nodes first, then nodes by name. */
export function placesOf(world) {
  const names = nodeNames(world);
  if (!nodePlaces.has(names)) nodePlaces.set(names, names.map((name) => new NodePlace(world, name)));
  return [...sharedPools(world), ...nodePlaces.get(names)];
}

function sharedPools(world) {
  const shared = [];
  for (const pool of world.poolsByNode.get("") ?? []) {
    const reports = pool.reports(world.nodes, world.rules);
    if (!poolPlaces.has(reports)) poolPlaces.set(reports, new PoolPlace(pool, reports));
    if (poolPlaces.get(reports).reports.length) shared.push(poolPlaces.get(reports));
  }
  return shared.sort((one, other) => collator.compare(one.driver, other.driver) || collator.compare(one.title, other.title));
}

/** Returns the devices that a node can use in pools of several nodes. */
export function sharedWith(world, name) {
  const node = world.nodes.get(name);
  if (!node) return [];
  const found = [];
  for (const { reports } of sharedPools(world)) {
    for (const report of reports) {
      const devices = report.devices.filter(({ placed }) => placed && isPlacedOn(placed, node));
      if (devices.length) found.push({ ...report, devices });
    }
  }
  return found;
}

const loads = new WeakMap();

/** Returns the allocated fraction of a place, from 0 to 1; cached until it changes. */
export function loadOfPlace({ reports }) {
  if (!reports.length) return 0;
  const known = loads.get(reports[0]);
  if (known?.count === reports.length && known.last === reports.at(-1)) return known.load;
  const load = loadOf(reports);
  loads.set(reports[0], { count: reports.length, last: reports.at(-1), load });
  return load;
}

/** True if no claim can get anything of the devices here, because all of them are full. */
export function isFull({ reports }) {
  const devices = reports.flatMap((report) => report.devices);
  return devices.length > 0 && devices.every(({ state }) => state === "full");
}
