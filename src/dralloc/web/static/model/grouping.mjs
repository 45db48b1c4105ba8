// Totals of devices by driver or node label: how many are free, and how much of each capacity is used.

import { collator } from "./names.mjs";
import { quantityLike } from "./quantity.mjs";

export const STATES = ["free", "shared", "full", "in use", "gone"];
// Labels with one value or with too many values do not form useful groups.
const VALUES_MAX = 40;

/** Returns devices by state and the sum of each capacity: by driver, or by the value of a node label. */
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
  return { devices: 0, tainted: 0, faults: 0, states: Object.fromEntries(STATES.map((state) => [state, 0])), capacities: new Map() };
}

function add(sum, summary) {
  sum.devices += summary.devices;
  sum.tainted += summary.tainted;
  sum.faults += summary.faults;
  for (const state of STATES) sum.states[state] += summary.states[state];
  for (const [key, { value, used, ...rest }] of summary.capacities) {
    const entry = sum.capacities.get(key);
    if (entry) {
      entry.value += value;
      entry.used += used;
    } else sum.capacities.set(key, { value, used, ...rest });
  }
}

const known = new WeakMap();

/** Returns devices by state and total capacities of one pool on one node; cached with its report. */
export function summaryOf(report) {
  let summary = known.get(report);
  if (!summary) known.set(report, (summary = summed(report)));
  return summary;
}

function summed({ driver, fault, devices }) {
  const summary = emptySummary();
  summary.devices = devices.length;
  summary.faults = fault ? 1 : 0;
  for (const device of devices) {
    summary.states[device.state] += 1;
    if (device.taints.length) summary.tainted += 1;
    for (const { name, value, used } of device.capacities) {
      // Two drivers may use one name for different capacities.
      const key = `${driver}/${name}`;
      const entry = summary.capacities.get(key);
      if (entry) {
        entry.value += value.nanos;
        entry.used += used.nanos;
      } else summary.capacities.set(key, { driver, name, value: value.nanos, used: used.nanos, format: value.format });
    }
  }
  return summary;
}

export function amountOf({ format }, nanos) {
  return quantityLike({ nanos: 1n, format }, nanos);
}

/** Returns the allocated fraction of a node, from 0 to 1; a shared device counts by its most used capacity. */
export function loadOf(reports) {
  let devices = 0;
  let used = 0;
  for (const report of reports) {
    for (const { state, capacities } of report.devices) {
      devices += 1;
      if (state === "in use" || state === "full") used += 1;
      else if (state === "shared") used += Math.max(0.1, ...capacities.map(({ value, used: taken }) => share(taken.nanos, value.nanos)));
    }
  }
  return devices ? used / devices : 0;
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
