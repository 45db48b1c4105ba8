// Totals by driver or node label: devices by state, and what is used and available of the hardware.

import { collator } from "./names.mjs";
import { quantityLike } from "./quantity.mjs";

export const STATES = ["free", "shared", "full", "blocked", "gone"];
// Labels with one value or with too many values do not form useful groups.
const VALUES_MAX = 40;

/** Returns devices by state and the hardware: by driver, or by the value of a node label. */
export function grouped(world, label = "") {
  const groups = new Map();
  for (const pool of world.pools.values()) {
    for (const report of pool.reports(world.nodes, world.rules)) {
      const name = label ? labelOf(report.node, label, world) : report.driver;
      let group = groups.get(name);
      if (!group) groups.set(name, (group = { name, pools: 0, ...emptySummary() }));
      group.pools += 1;
      add(group, summaryOf(report));
    }
  }
  return [...groups.values()].sort((one, other) => collator.compare(one.name, other.name));
}

export const SEVERAL = "for several nodes";
export const UNLABELLED = "without this label";

function labelOf(node, label, world) {
  return node ? (world.nodes.get(node)?.labels[label] ?? UNLABELLED) : SEVERAL;
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
    return labels.map(([label]) => label).sort(collator.compare);
  });
}

function emptySummary() {
  return { devices: 0, tainted: 0, faults: 0, states: Object.fromEntries(STATES.map((state) => [state, 0])), hardware: new Map() };
}

function add(sum, summary) {
  sum.devices += summary.devices;
  sum.tainted += summary.tainted;
  sum.faults += summary.faults;
  for (const state of STATES) sum.states[state] += summary.states[state];
  for (const [key, amount] of summary.hardware) {
    const entry = sum.hardware.get(key);
    if (entry) {
      entry.value += amount.value;
      entry.used += amount.used;
      entry.available += amount.available;
    } else sum.hardware.set(key, { ...amount });
  }
}

const known = new WeakMap();

/** Returns devices by state and the hardware of one pool on one node; cached with its report. */
export function summaryOf(report) {
  let summary = known.get(report);
  if (!summary) known.set(report, (summary = summed(report)));
  return summary;
}

function summed({ driver, fault, devices, hardware }) {
  const summary = emptySummary();
  summary.devices = devices.length;
  summary.faults = fault ? 1 : 0;
  for (const device of devices) {
    summary.states[device.state] += 1;
    if (device.taints.length) summary.tainted += 1;
  }
  // Two drivers may use one name for different amounts.
  for (const amount of hardware) summary.hardware.set(`${driver}/${amount.name}`, { driver, ...amount });
  return summary;
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
