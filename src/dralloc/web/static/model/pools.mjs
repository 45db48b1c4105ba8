// Pools: their current slices, faults, and what is left of their counters.
//
// The same rules as `dralloc.snapshot.pools` and `dralloc.whatif.usage_report`, with the features that are on by default.

import { compared } from "./names.mjs";
import { isPlacedOn } from "./node_selectors.mjs";
import { parseQuantity, quantityLike } from "./quantity.mjs";
import { deviceReport, goneReport } from "./usage.mjs";

export class Pool {
  constructor(driver, name) {
    this.driver = driver;
    this.name = name;
    this.slices = new Map();
    // The allocations of claims, by device.
    this.holdings = new Map();
    this.changed();
  }

  get isEmpty() {
    return this.slices.size === 0 && this.holdings.size === 0;
  }

  changed() {
    this.known = null;
  }

  hold(device, holding) {
    const holdings = this.holdings.get(device);
    if (holdings) holdings.push(holding);
    else this.holdings.set(device, [holding]);
    this.changed();
  }

  release(device, claim) {
    const left = (this.holdings.get(device) ?? []).filter((holding) => holding.claim !== claim);
    if (left.length) this.holdings.set(device, left);
    else this.holdings.delete(device);
    this.changed();
  }

  /** Returns the pool's report for each node; computed again only after a change. */
  reports(nodes, rules) {
    this.known ??= [...reportsOf(this, nodes, rules)];
    return this.known;
  }
}

const NO_HOLDINGS = Object.freeze([]);

function* reportsOf(pool, nodes, rules) {
  const byNode = new Map();
  const slices = [...pool.slices.values()].sort((one, other) => compared(one.name, other.name));
  for (const slice of slices) {
    const node = slice.spec.nodeName ?? "";
    if (byNode.has(node)) byNode.get(node).push(slice);
    else byNode.set(node, [slice]);
  }
  const present = new Set();
  const reportOf = (device, spec) => {
    present.add(device.name);
    const holdings = pool.holdings.get(device.name) ?? NO_HOLDINGS;
    const placed = spec.perDeviceNodeSelection ? device : spec;
    return deviceReport(device, placed, holdings, rules.taintsOf(pool.driver, pool.name, device.name));
  };
  for (const [node, placed] of [...byNode].sort(([one], [other]) => compared(one, other))) {
    const newest = Math.max(...placed.map(({ spec }) => spec.pool.generation));
    const current = placed.filter(({ spec }) => spec.pool.generation === newest);
    if (!current.some(({ spec }) => spec.devices?.length)) continue;
    const layout = layOut(slices, node, current, nodes);
    yield {
      driver: pool.driver,
      pool: pool.name,
      node,
      fault: layout.fault,
      devices: current.flatMap(({ spec }) => (spec.devices ?? []).map((device) => reportOf(device, spec))),
      counters: layout.fault ? [] : countersLeft(layout, pool.holdings),
    };
  }
  const gone = [...pool.holdings].filter(([device]) => !present.has(device));
  if (gone.length) {
    yield {
      driver: pool.driver,
      pool: pool.name,
      node: "",
      fault: "has no such devices any more",
      devices: gone.map(([device, holdings]) => goneReport(device, holdings)),
      counters: [],
    };
  }
}

// --- Current slices ---------------------------------------------------------------------------------------------

/** Returns the slices for the nodes of `current`, or what is wrong with them. */
function layOut(slices, nodeName, current, nodes) {
  const node = nodeName ? (nodes.get(nodeName) ?? { name: nodeName, labels: {} }) : firstNodeFor(current, nodes);
  if (!node) return { fault: "is for no node that is known" };
  const relevant = [
    ...slices.filter(({ spec }) => spec.nodeName === node.name),
    ...slices.filter(({ spec }) => !spec.nodeName),
  ].filter((slice) => !hasGroups(slice) && isFor(slice, node));
  if (!relevant.length) return { fault: NOT_IN_USE };
  const generation = Math.max(...relevant.map(({ spec }) => spec.pool.generation));
  const newest = relevant.filter(({ spec }) => spec.pool.generation === generation);
  const wanted = newest[0].spec.pool.resourceSliceCount;
  let elsewhere = [];
  if (newest.length !== wanted) {
    if (slices.some(({ spec }) => spec.pool.generation > generation)) return { fault: NOT_IN_USE };
    const same = slices.filter(({ spec }) => spec.pool.generation === generation);
    const counts = slices.some(drawsOrCounts);
    elsewhere = counts ? same.filter((slice) => !newest.includes(slice) && !hasGroups(slice)) : [];
    const published = counts ? newest.length + elsewhere.length : same.length;
    if (published !== wanted) return { fault: incomplete(published, wanted) };
  }
  return checked(newest.sort((one, other) => compared(one.name, other.name)), elsewhere);
}

const NOT_IN_USE = "is not in use: a newer generation is being published, or a feature that it needs is off";

function incomplete(published, announced) {
  if (published > announced) return `is being updated: ${published} slices are published instead of ${announced}`;
  return `is being updated: only ${published} of ${announced} slices ${published === 1 ? "is" : "are"} published`;
}

function firstNodeFor(slices, nodes) {
  const known = [...nodes.values()].sort((one, other) => compared(one.name, other.name));
  const candidates = known.length ? known : [{ name: "", labels: {} }];
  return candidates.find((node) => slices.some((slice) => isFor(slice, node)));
}

function isFor({ spec }, node) {
  if (spec.perDeviceNodeSelection) return (spec.devices ?? []).some((device) => isPlacedOn(device, node));
  return isPlacedOn(spec, node);
}

/** Compatibility groups are off by default; slices with them are ignored then. */
function hasGroups({ spec }) {
  return (spec.devices ?? []).some((device) => (device.consumesCounters ?? []).some((use) => use.compatibilityGroups?.length));
}

function drawsOrCounts({ spec }) {
  return Boolean(spec.sharedCounters?.length) || (spec.devices ?? []).some((device) => device.consumesCounters?.length);
}

function checked(relevant, elsewhere) {
  const offering = relevant.filter(({ spec }) => !spec.sharedCounters?.length);
  const names = offering.flatMap(({ spec }) => (spec.devices ?? []).map(({ name }) => name));
  if (new Set(names).size < names.length) return { fault: "is invalid: two devices have the same name" };
  const sets = [...relevant, ...elsewhere].flatMap(({ spec }) => spec.sharedCounters ?? []);
  if (new Set(sets.map(({ name }) => name)).size < sets.length) return { fault: "is invalid: two counter sets have the same name" };
  const drawing = [...offering, ...elsewhere].flatMap(({ spec }) => spec.devices ?? []);
  return { fault: missingCounter(drawing, sets), sets, drawing };
}

function missingCounter(devices, sets) {
  const counters = new Map(sets.map(({ name, counters }) => [name, counters ?? {}]));
  for (const device of devices) {
    for (const { counterSet, counters: drawn } of device.consumesCounters ?? []) {
      if (!counters.has(counterSet)) return `is invalid: device ${device.name} draws from the unknown counter set ${counterSet}`;
      for (const name of Object.keys(drawn ?? {})) {
        if (!Object.hasOwn(counters.get(counterSet), name)) {
          return `is invalid: device ${device.name} draws from the unknown counter ${counterSet}/${name}`;
        }
      }
    }
  }
  return "";
}

/** Returns the first insufficient counter for the device; null if there is none. */
export function shortCounter(device, counters) {
  for (const { counterSet, counters: drawn } of device.consumesCounters ?? []) {
    for (const [name, { value }] of Object.entries(drawn ?? {})) {
      const counter = counters.find((each) => each.counterSet === counterSet && each.name === name);
      if (counter && counter.left.nanos < parseQuantity(value).nanos) return counter;
    }
  }
  return null;
}

/** Returns what devices in use leave of the counters. A device consumes once, however many share it. */
function countersLeft({ sets, drawing }, holdings) {
  const left = new Map();
  for (const { name, counters } of sets) {
    for (const [counter, { value }] of Object.entries(counters ?? {})) {
      const quantity = parseQuantity(value);
      left.set(`${name}/${counter}`, { counterSet: name, name: counter, value: quantity, left: quantity });
    }
  }
  for (const device of left.size ? drawing : []) {
    const isUsed = (holdings.get(device.name) ?? []).some(({ result }) => !result.adminAccess);
    for (const { counterSet, counters } of isUsed ? (device.consumesCounters ?? []) : []) {
      for (const [counter, { value }] of Object.entries(counters ?? {})) {
        const entry = left.get(`${counterSet}/${counter}`);
        entry.left = quantityLike(entry.value, entry.left.nanos - parseQuantity(value).nanos);
      }
    }
  }
  return [...left.values()];
}
