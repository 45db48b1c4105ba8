// Many devices in a few lines: how many of each driver are free, and how much of each capacity is used.

import { quantityLike } from "./quantity.mjs";
import { collator } from "./names.mjs";

export const STATES = ["free", "shared", "full", "in use", "gone"];

/** By driver: devices by state, and the sum of each capacity. */
export function byDriver(world) {
  const groups = new Map();
  for (const pool of world.pools.values()) {
    const summary = summaryOf(pool, world);
    let group = groups.get(pool.driver);
    if (!group) groups.set(pool.driver, (group = { driver: pool.driver, pools: 0, ...emptySummary() }));
    group.pools += 1;
    add(group, summary);
  }
  return [...groups.values()].sort((one, other) => collator.compare(one.driver, other.driver));
}

function emptySummary() {
  return { devices: 0, tainted: 0, faults: 0, states: Object.fromEntries(STATES.map((state) => [state, 0])), capacities: new Map() };
}

function add(sum, summary) {
  sum.devices += summary.devices;
  sum.tainted += summary.tainted;
  sum.faults += summary.faults;
  for (const state of STATES) sum.states[state] += summary.states[state];
  for (const [name, { value, used, format }] of summary.capacities) {
    const entry = sum.capacities.get(name);
    if (entry) {
      entry.value += value;
      entry.used += used;
    } else sum.capacities.set(name, { value, used, format });
  }
}

const known = new WeakMap();

/** The summary of one pool, kept for as long as its reports are. */
export function summaryOf(pool, world) {
  const reports = pool.reports(world.nodes, world.rules);
  let summary = known.get(reports);
  if (!summary) known.set(reports, (summary = summed(reports)));
  return summary;
}

/** Devices by state and capacities in sum. */
export function summed(reports) {
  const summary = emptySummary();
  for (const { fault, devices } of reports) {
    if (fault) summary.faults += 1;
    for (const device of devices) {
      summary.devices += 1;
      summary.states[device.state] += 1;
      if (device.taints.length) summary.tainted += 1;
      for (const { name, value, used } of device.capacities) {
        const entry = summary.capacities.get(name);
        if (entry) {
          entry.value += value.nanos;
          entry.used += used.nanos;
        } else summary.capacities.set(name, { value: value.nanos, used: used.nanos, format: value.format });
      }
    }
  }
  return summary;
}

export function amountOf({ format }, nanos) {
  return quantityLike({ nanos: 1n, format }, nanos);
}

/** How much of a node is given out, from 0 to 1: devices by the capacity that is used most, or whole. */
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

/** Every node, by name, those only slices know included; "" first, where some pools are not for one node. */
export function nodeNames(world) {
  if (known.get(world)?.version !== world.layoutVersion) {
    const names = new Set(world.nodes.keys());
    for (const node of world.poolsByNode.keys()) names.add(node);
    const hasShared = names.delete("");
    const sorted = [...names].sort(collator.compare);
    known.set(world, { version: world.layoutVersion, names: sorted, hasShared });
  }
  return known.get(world).names;
}

