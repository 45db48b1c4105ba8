// Pools: their current slices, faults, and what is left of their counters.
//
// The same rules as `dralloc.devices.pools` and `dralloc.answers.usage_report`, with the features that are on by default.

import { compared } from "./names.mjs";
import { isPlacedOn } from "./node_selectors.mjs";
import { parseQuantity, printQuantity, quantityLike } from "./quantity.mjs";
import { taintText } from "./taint_rules.mjs";
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
    this.known ??= this._reports(nodes, rules);
    return this.known;
  }

  /** A pool that is not of the form of the API is a fault; the other pools stay visible. */
  _reports(nodes, rules) {
    try {
      return [...reportsOf(this, nodes, rules)];
    } catch (error) {
      const node = [...this.slices.values()].find(({ spec }) => spec.nodeName)?.spec.nodeName ?? "";
      return [{ driver: this.driver, pool: this.name, node, fault: `cannot be read: ${error.message}`, devices: [], counters: [], hardware: [] }];
    }
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
  // Counter sets that an earlier report has in its hardware.
  const counted = new Set();
  for (const [node, placed] of [...byNode].sort(([one], [other]) => compared(one, other))) {
    const current = newestOf(placed);
    if (!current.some(({ spec }) => spec.devices?.length)) continue;
    const taintsOf = (device) => allTaints(device, rules.taintsOf(pool.driver, pool.name, device.name));
    const { layout, fault, blockOf } = surveyed(slices, node, current, nodes, pool.holdings, taintsOf);
    const counters = layout ? countersLeft(layout, pool.holdings) : [];
    const devices = current.flatMap((slice) =>
      (slice.spec.devices ?? []).map((device) => {
        present.add(device.name);
        const placing = slice.spec.perDeviceNodeSelection ? device : slice.spec;
        return deviceReport(device, placing, pool.holdings.get(device.name) ?? NO_HOLDINGS, taintsOf(device), blockOf(slice, device));
      }),
    );
    yield { driver: pool.driver, pool: pool.name, node, fault, devices, counters, hardware: hardwareOf(devices, slices, pool.holdings, counters, counted) };
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
      hardware: [],
    };
  }
}

function newestOf(slices) {
  const newest = Math.max(...slices.map(({ spec }) => spec.pool.generation));
  return slices.filter(({ spec }) => spec.pool.generation === newest);
}

function allTaints(device, ruleTaints) {
  return device.taints?.length ? [...device.taints, ...ruleTaints] : ruleTaints;
}

// --- What blocks devices ------------------------------------------------------------------------------------------

const OLDER = Object.freeze({ cause: "pool", reason: "the slice is not in use: the pool has a newer generation" });
const NO_NODE = Object.freeze({ cause: "pool", reason: "the device is for no node that is known" });

/** Asks the nodes of a pool what blocks its devices; a device is blocked if it is on all of them. */
function surveyed(slices, nodeName, current, nodes, holdings, taintsOf) {
  const blocks = new Map();
  let [layout, fault, poolBlock] = [null, "", null];
  for (const node of nodesFor(nodeName, current, nodes)) {
    const found = layOut(slices, node);
    if (found.fault) {
      fault ||= found.fault;
      continue;
    }
    layout ??= found;
    const closed = whyClosed(node, nodes);
    if (closed) {
      poolBlock ??= { cause: "node", reason: closed };
      continue;
    }
    const left = new Map(countersLeft(found, holdings).map((counter) => [`${counter.counterSet}/${counter.name}`, counter.left]));
    let isDone = true;
    for (const slice of current) {
      for (const device of slice.spec.devices ?? []) {
        const known = blocks.get(device);
        if (!blocks.has(device) || known?.cause === "pool") blocks.set(device, blockOn(slice, device, node, found, left, holdings, taintsOf));
        if (blocks.get(device)?.cause === "pool") isDone = false;
      }
    }
    if (nodeName || isDone) break;
  }
  if (layout) fault = "";
  else {
    fault ||= "is for no node that is known";
    poolBlock = { cause: "pool", reason: `the pool ${fault}` };
  }
  return { layout, fault, blockOf: (_, device) => (blocks.has(device) ? blocks.get(device) : poolBlock) };
}

/** Why no pod can get devices on the node; empty if pods can. */
function whyClosed(node, nodes) {
  if (!nodes.size) return "";
  return nodes.has(node.name) ? (nodes.get(node.name).closed ?? "") : `there is no node ${node.name}`;
}

function* nodesFor(nodeName, current, nodes) {
  if (nodeName) {
    yield nodes.get(nodeName) ?? { name: nodeName, labels: {} };
    return;
  }
  const known = [...nodes.values()].sort((one, other) => compared(one.name, other.name));
  for (const node of known.length ? known : [{ name: "", labels: {} }]) {
    if (current.some((slice) => isFor(slice, node))) yield node;
  }
}

/** What blocks a device on one node; null if a request can get it, unless its use leaves nothing. */
function blockOn(slice, device, node, { offering }, left, holdings, taintsOf) {
  if (!offering.has(slice)) return OLDER;
  const repelling = taintsOf(device).filter(({ effect }) => effect === "NoSchedule" || effect === "NoExecute");
  if (repelling.length) return { cause: "taints", reason: `taint ${repelling.map(taintText).join(", ")}` };
  if (slice.spec.perDeviceNodeSelection && !isPlacedOn(device, node)) return NO_NODE;
  const isShared = device.allowMultipleAllocations && (holdings.get(device.name) ?? []).some(({ result }) => !result.adminAccess && result.shareID);
  // Only the first share of a device consumes counters.
  if (!device.consumesCounters?.length || isShared) return null;
  if ([...left.values()].some(({ nanos }) => nanos < 0n)) {
    return { cause: "counters", reason: "a counter of the pool is overcommitted by allocated devices" };
  }
  for (const { counterSet, counters } of device.consumesCounters) {
    for (const [name, { value }] of Object.entries(counters ?? {})) {
      const has = left.get(`${counterSet}/${name}`);
      if (has.nanos >= parseQuantity(value).nanos) continue;
      return { cause: "counters", reason: `insufficient counter ${counterSet}/${name}: needs ${value}, available ${printQuantity(has)}` };
    }
  }
  return null;
}

// --- Hardware -------------------------------------------------------------------------------------------------------

/**
 * What there is, is used and can be claimed of each capacity, in nanos. Devices that consume counters overlap, so their
 * hardware is the counter sets; the hardware of all others is their capacity.
 */
function hardwareOf(devices, slices, holdings, counters, counted) {
  const sums = new Map();
  const add = (product, name, model, value, used, available) => {
    const key = `${product}/${name}`;
    const sum = sums.get(key);
    if (!sum) sums.set(key, { name, product, format: model.format, value, used, available });
    else [sum.value, sum.used, sum.available] = [sum.value + value, sum.used + used, sum.available + available];
  };
  const drawing = devices.filter(({ device }) => device.consumesCounters?.length);
  for (const { device, product, capacities } of devices) {
    if (device.consumesCounters?.length) continue;
    for (const { name, value, used, free } of capacities) add(product, name, value, value.nanos, used.nanos, free.nanos);
  }
  if (!drawing.length) return [...sums.values()];
  // Devices of one set are parts of one card.
  const products = new Map(drawing.flatMap(({ device, product }) => device.consumesCounters.map(({ counterSet }) => [counterSet, product])));
  const mine = new Set([...products.keys()].filter((name) => !counted.has(name)));
  mine.forEach((name) => counted.add(name));
  const current = newestOf(slices);
  const used = new Map();
  for (const [name, held] of holdings) {
    if (held.every(({ result }) => result.adminAccess)) continue;
    const device = current.flatMap(({ spec }) => spec.devices ?? []).find((each) => each.name === name);
    drawInto(used, device ?? {});
  }
  const available = drawnTogether(drawing, counters);
  const seen = new Set();
  for (const { name: set, counters: declared } of current.flatMap(({ spec }) => spec.sharedCounters ?? [])) {
    for (const [name, { value }] of Object.entries(mine.has(set) ? (declared ?? {}) : {})) {
      const key = `${set}/${name}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const amount = parseQuantity(value);
      add(products.get(set), name, amount, amount.nanos, used.get(key) ?? 0n, available.get(key) ?? 0n);
    }
  }
  return [...sums.values()];
}

function drawInto(drawn, device) {
  for (const { counterSet, counters } of device.consumesCounters ?? []) {
    for (const [name, { value }] of Object.entries(counters ?? {})) {
      const key = `${counterSet}/${name}`;
      drawn.set(key, (drawn.get(key) ?? 0n) + parseQuantity(value).nanos);
    }
  }
}

/** What free devices draw that can be allocated together, the largest first. */
function drawnTogether(drawing, counters) {
  const left = new Map(counters.map(({ counterSet, name, left: { nanos } }) => [`${counterSet}/${name}`, nanos]));
  const free = drawing.filter(({ state }) => state === "free").map(({ device }) => {
    const draws = new Map();
    drawInto(draws, device);
    return { draws, total: [...draws.values()].reduce((sum, nanos) => sum + nanos, 0n) };
  });
  const drawn = new Map();
  for (const { draws } of free.sort((one, other) => (one.total < other.total ? 1 : one.total > other.total ? -1 : 0))) {
    const fits = [...draws].every(([key, nanos]) => (drawn.get(key) ?? 0n) + nanos <= (left.get(key) ?? 0n));
    if (fits) for (const [key, nanos] of draws) drawn.set(key, (drawn.get(key) ?? 0n) + nanos);
  }
  return drawn;
}

// --- Current slices ---------------------------------------------------------------------------------------------

/** Returns the slices of the pool that a node uses, or what is wrong with them. */
function layOut(slices, node) {
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
  return { fault: missingCounter(drawing, sets), sets, drawing, offering: new Set(offering) };
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
