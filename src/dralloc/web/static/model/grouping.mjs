// Totals by hardware, driver or node label: devices by state, and what is used and available of the hardware.

import { collator } from "./names.mjs";
import { quantityLike } from "./quantity.mjs";

export const STATES = ["free", "shared", "full", "blocked", "gone"];
// Labels with one value or with too many values do not form useful groups.
const VALUES_MAX = 40;

// What totals can be grouped by, besides node labels.
export const BY_HARDWARE = "";
export const BY_DRIVER = "driver";

/** Returns devices by state and what there is of the hardware: by driver and product, by driver, or by the value of a node label. */
export function grouped(world, by = BY_HARDWARE) {
  const groups = new Map();
  const groupOf = (driver, name) => {
    const key = `${driver}\n${name}`;
    if (!groups.has(key)) groups.set(key, { driver, name, pools: 0, ...emptySummary() });
    return groups.get(key);
  };
  for (const pool of world.pools.values()) {
    for (const report of pool.reports(world.nodes, world.rules)) {
      for (const [product, summary] of summariesOf(report)) {
        const isProduct = by === BY_HARDWARE;
        const group = isProduct ? groupOf(report.driver, product) : groupOf("", by === BY_DRIVER ? report.driver : labelOf(report.node, by, world));
        if (isProduct || summary.isFirst) group.pools += 1;
        add(group, summary);
      }
    }
  }
  return [...groups.values()].sort((one, other) => collator.compare(one.driver, other.driver) || collator.compare(one.name, other.name));
}

export const SEVERAL = "for several nodes";
export const UNLABELLED = "without this label";

function labelOf(node, label, world) {
  if (!node) return SEVERAL;
  const labels = world.nodes.get(node)?.labels ?? {};
  return Object.hasOwn(labels, label) ? String(labels[label]) : UNLABELLED;
}

/** Returns the labels that divide the nodes into a few groups. */
export function groupingLabels(world) {
  return remembered(world, "labels", () => {
    const values = new Map();
    for (const { labels } of world.nodes.values()) {
      for (const [label, value] of Object.entries(labels)) {
        if (!values.has(label)) values.set(label, new Set());
        if (values.get(label).size <= VALUES_MAX) values.get(label).add(value);
      }
    }
    const labels = [...values].filter(([, each]) => each.size > 1 && each.size <= VALUES_MAX);
    return labels.map(([label]) => label).filter((label) => label !== BY_DRIVER).sort(collator.compare);
  });
}

function emptySummary() {
  return { largest: new Map(), devices: 0, tainted: 0, faults: 0, states: Object.fromEntries(STATES.map((state) => [state, 0])), hardware: new Map() };
}

function add(sum, summary) {
  sum.devices += summary.devices;
  sum.tainted += summary.tainted;
  sum.faults += summary.faults;
  for (const state of STATES) sum.states[state] += summary.states[state];
  for (const [name, amount] of summary.largest) enlarge(sum.largest, name, amount);
  for (const [key, amount] of summary.hardware) {
    const entry = sum.hardware.get(key);
    if (entry) {
      entry.value += amount.value;
      entry.used += amount.used;
      entry.available += amount.available;
    } else sum.hardware.set(key, { ...amount });
  }
}

function enlarge(largest, name, amount) {
  if (amount !== null && !(largest.get(name)?.nanos >= amount.nanos)) largest.set(name, amount);
}

const known = new WeakMap();

/** Returns devices by state and the hardware of one pool on one node, by product; cached with its report. */
export function summariesOf(report) {
  let summaries = known.get(report);
  if (!summaries) known.set(report, (summaries = summed(report)));
  return summaries;
}

function summed({ driver, fault, devices, hardware }) {
  const summaries = new Map();
  const of = (product) => {
    if (!summaries.has(product)) summaries.set(product, { isFirst: !summaries.size, ...emptySummary() });
    return summaries.get(product);
  };
  for (const { product, state, taints, capacities } of devices) {
    const summary = of(product);
    summary.devices += 1;
    summary.states[state] += 1;
    if (taints.length) summary.tainted += 1;
    for (const { name, largest } of capacities) enlarge(summary.largest, name, largest);
  }
  // Two drivers may use one name for different amounts.
  for (const amount of hardware) of(amount.product).hardware.set(`${driver}/${amount.name}`, { driver, ...amount });
  if (fault) of(devices[0]?.product ?? "").faults = 1;
  return summaries;
}

export function amountOf({ format }, nanos) {
  return quantityLike({ nanos: 1n, format }, nanos);
}

/** Returns the allocated fraction of a node, from 0 to 1; a shared device or a counter set counts by its most used amount. */
export function loadOf(reports) {
  let count = 0;
  let used = 0;
  for (const { devices, counters } of reports) {
    const sets = new Map();
    for (const { counterSet, value, left } of counters) {
      sets.set(counterSet, Math.max(sets.get(counterSet) ?? 0, share(value.nanos - left.nanos, value.nanos)));
    }
    for (const load of sets.values()) [count, used] = [count + 1, used + load];
    for (const { state, capacities, device } of devices) {
      if (sets.size && device.consumesCounters?.length) continue;
      count += 1;
      if (state === "full") used += 1;
      else if (state === "shared") used += Math.max(0.1, ...capacities.map(({ value, used: taken }) => share(taken.nanos, value.nanos)));
    }
  }
  return count ? used / count : 0;
}

function share(part, whole) {
  return whole > 0n ? Number((part * 1000n) / whole) / 1000 : 0;
}

/** Returns all node names, including those that only slices mention. */
export function nodeNames(world) {
  return remembered(world, "names", () => {
    const names = new Set([...world.nodes.keys(), ...world.poolsByNode.keys()]);
    names.delete("");
    return [...names].sort(collator.compare);
  });
}

const memories = new WeakMap();

/** A cache that is valid until nodes are added or removed. */
function remembered(world, what, workOut) {
  let memory = memories.get(world);
  if (memory?.version !== world.layoutVersion) memories.set(world, (memory = { version: world.layoutVersion }));
  memory[what] ??= workOut();
  return memory[what];
}
