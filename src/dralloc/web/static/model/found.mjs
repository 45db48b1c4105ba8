// Objects by name: nodes, devices, claims and pods whose names contain all words, and the way from each to its node, device and share.

import { nodeNames } from "./grouping.mjs";
import { collator } from "./names.mjs";
import { nodesOf, resultsOf } from "./world.mjs";

/** Returns the matches of each kind that has some: the best `shown`, and how many there are. */
export function foundByName(world, words, shownMax) {
  if (!words.length) return [];
  const kinds = [
    ["nodes", nodeNames(world).map((name) => ({ name, text: name }))],
    ["devices", devicesOf(world)],
    ["claims", [...world.claims.values()].map((claim) => ({ name: claim.name, text: textOfClaim(claim), claim }))],
    ["pods", [...world.pods.values()].map((pod) => ({ name: pod.name, text: pod.key, pod }))],
  ];
  return kinds.map(([kind, all]) => best(kind, all, words, shownMax)).filter(({ count }) => count > 0);
}

function* eachDevice(world) {
  for (const pool of world.pools.values()) {
    for (const report of pool.reports(world.nodes, world.rules)) {
      for (const device of report.devices) yield { name: device.name, text: `${report.driver}/${report.pool}/${device.name} ${report.node}`, report, device };
    }
  }
}

function devicesOf(world) {
  return [...eachDevice(world)];
}

/** A claim is found by its name and by the IDs of its shares. */
function textOfClaim(claim) {
  const shares = resultsOf(claim).map(({ shareID }) => shareID).filter(Boolean);
  return shares.length ? `${claim.key} ${shares.join(" ")}` : claim.key;
}

function best(kind, all, words, shownMax) {
  const matches = [];
  for (const each of all) {
    const text = each.text.toLowerCase();
    if (words.every((word) => text.includes(word))) matches.push({ ...each, rank: rankOf(each.name.toLowerCase(), text, words) });
  }
  matches.sort((one, other) => one.rank - other.rank || collator.compare(one.text, other.text));
  return { kind, count: matches.length, shown: matches.slice(0, shownMax) };
}

/** The whole name comes before its beginning, and that before any other part of the text. */
function rankOf(name, text, words) {
  if (words.includes(name) || words.includes(text)) return 0;
  return words.some((word) => name.startsWith(word)) ? 1 : 2;
}

/** Returns the devices of a claim with their nodes: where each is, and the share that the claim has of it. */
export function waysOfClaim(claim, world) {
  return resultsOf(claim).map((result) => ({ claim, result, node: nodeOfResult(claim, result, world) }));
}

function nodeOfResult(claim, { driver, pool, device }, world) {
  return world.device(driver, pool, device)?.report.node || nodesOf(claim)[0] || "";
}

/** Returns the claims of a pod that exist. */
export function claimsOfPod(pod, world) {
  return pod.claims.map(({ claim }) => claim && world.claims.get(`${pod.namespace}/${claim}`)).filter(Boolean);
}
