// Reads clusters, one a line, and prints what the page's model says is used of their devices.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const model = `${pathToFileURL(process.argv[2]).href}/model`;
const { World } = await import(`${model}/world.mjs`);
const { amountOf } = await import(`${model}/grouping.mjs`);
const { printQuantity } = await import(`${model}/quantity.mjs`);
const { taintText } = await import(`${model}/taint_rules.mjs`);

for await (const line of createInterface({ input: process.stdin })) {
  const cluster = JSON.parse(line);
  const world = new World();
  for (const [kind, objects] of Object.entries(cluster)) for (const object of objects) world.put(kind, object);
  const reports = [...world.pools.values()].flatMap((pool) => pool.reports(world.nodes, world.rules));
  console.log(JSON.stringify(reports.map(plain)));
}

function plain({ driver, pool, node, fault, devices, counters, hardware }) {
  return {
    driver, pool, fault,
    nodeName: node,
    counters: counters.map(({ counterSet, name, value, left }) => ({ counterSet, name, value: printQuantity(value), left: printQuantity(left) })),
    hardware: hardware.map((amount) => {
      const [value, used, available] = [amount.value, amount.used, amount.available].map((nanos) => printQuantity(amountOf(amount, nanos)));
      return { product: amount.product, name: amount.name, value, used, available };
    }),
    devices: devices.map(({ name, state, block, isShareable, capacities, taints, holdings }) => ({
      name, state,
      blockedBy: block?.cause ?? null,
      reason: block?.reason ?? null,
      allowMultipleAllocations: isShareable,
      capacity: Object.fromEntries(
        capacities.map(({ name: key, value, used, free, largest }) => [
          key,
          {
            value: printQuantity(value),
            used: printQuantity(used),
            free: printQuantity(free),
            largestRequest: largest === null ? null : printQuantity(largest),
          },
        ]),
      ),
      taints: taints.map(taintText),
      holders: holdings.map(({ claim }) => claim.name),
    })),
  };
}
