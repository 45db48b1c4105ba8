// All devices: in sum by driver or kind of node, then node by node, each device as bars.

import { grouped, groupingLabels, loadOf, nodeNames, SEVERAL, STATES, summaryOf, UNLABELLED } from "../model/grouping.mjs";
import { claimState } from "../model/story.mjs";
import { html, useMemo } from "../vendor/htm-preact.mjs";
import { ClaimLink, DeviceRow, StateBar, SumBar } from "./bars.mjs";
import { NodeMap } from "./node_map.mjs";
import { Choice, matchesQuery, pageOf, Pages, Search, wordsOf } from "./paging.mjs";
import { href, setParameters } from "./routes.mjs";
import { counted } from "./text.mjs";

const NODES_PER_PAGE = 12;
// A map of fewer says nothing that the cards do not.
const MAPPED_FROM = 25;
const DEVICES_SHOWN = 10;
const CLAIMS_SHOWN = 5;
const ANY_NODE = "";

export function DevicesView({ world, route, version }) {
  const { q = "", by = "", driver = "", state = "", sort = "" } = route.parameters;
  const groups = useMemo(() => grouped(world, by), [world, version, by]);
  const found = useMemo(() => findNodes(world, { q, driver, state, sort }), [world, version, q, driver, state, sort]);
  if (!groups.length) return html`<${NoDevices} world=${world} />`;
  const { page, pages, shown } = pageOf(found, route.parameters, NODES_PER_PAGE);
  return html`
    <${Totals} world=${world} groups=${groups} />
    <section aria-labelledby="groups">
      <div class="section-head">
        <h2 id="groups">In sum</h2>
        <label class="filter">by <${Choice} name="by" value=${by} options=${[["", "driver"], ...groupingLabels(world).map((label) => [label, label])]} /></label>
      </div>
      <ul class="tiles">
        ${groups.map((group) => html`<${GroupTile} key=${group.name} group=${group} by=${by} driver=${driver} q=${q} />`)}
      </ul>
    </section>
    <section aria-labelledby="nodes">
      <div class="section-head">
        <h2 id="nodes">Nodes</h2>
        <${Search} label="Search nodes" placeholder="node, device, label, claim" value=${q} found=${found.length} noun="node" />
        <label class="filter">with devices that are <${Choice} name="state" value=${state} options=${[["", "in any state"], ...STATES.map((each) => [each, each])]} /></label>
        <label class="filter">in order of <${Choice} name="sort" value=${sort} options=${ORDERS} /></label>
      </div>
      ${found.length >= MAPPED_FROM && html`<${NodeMap} world=${world} names=${found} version=${version} />`}
      ${shown.length
        ? html`<ul class="cards">
            ${shown.map((name) => html`<${NodeCard} key=${name} name=${name} world=${world} driver=${driver} />`)}
          </ul>`
        : html`<p class="empty">No node matches. <button type="button" class="link" onClick=${() => setParameters({ q: "", state: "", driver: "", page: null })}>Show all nodes</button></p>`}
      <${Pages} page=${page} pages=${pages} label="Pages of nodes" />
    </section>
  `;
}

// --- In sum -----------------------------------------------------------------------------------------------------

function Totals({ world, groups }) {
  const devices = groups.reduce((sum, group) => sum + group.devices, 0);
  const free = groups.reduce((sum, group) => sum + group.states.free, 0);
  const tainted = groups.reduce((sum, group) => sum + group.tainted, 0);
  let [waiting, notReady] = [0, 0];
  for (const claim of world.claims.values()) if (claimState(claim) === "waiting") waiting += 1;
  for (const node of world.nodes.values()) if (!node.isReady) notReady += 1;
  return html`<dl class="totals">
    <${Total} name="Nodes" value=${nodeNames(world).length} said=${notReady ? `${notReady} not ready` : "all ready"} isBad=${notReady > 0} />
    <${Total} name="Devices" value=${devices} said=${`${free.toLocaleString("en")} free${tainted ? `, ${tainted} tainted` : ""}`} />
    <${Total} name="Claims" value=${world.claims.size} said=${waiting ? `${waiting.toLocaleString("en")} waiting` : "none waiting"} isBad=${waiting > 0} />
    <${Total} name="Pods" value=${world.pods.size} said=${podsText(world)} />
  </dl>`;
}

function podsText(world) {
  let running = 0;
  for (const { phase } of world.pods.values()) if (phase === "Running") running += 1;
  return `${running.toLocaleString("en")} running`;
}

function Total({ name, value, said, isBad }) {
  return html`<div class="total">
    <dt>${name}</dt>
    <dd><span class="number">${value.toLocaleString("en")}</span><span class=${isBad ? "said bad" : "said"}>${said}</span></dd>
  </div>`;
}

/** One group; choosing it shows its nodes only. */
function GroupTile({ group, by, driver, q }) {
  const word = `${by}=${group.name}`;
  const canChoose = group.name !== SEVERAL && group.name !== UNLABELLED;
  const isChosen = by ? q === word : driver === group.name;
  const choose = () => setParameters({ [by ? "q" : "driver"]: isChosen ? "" : by ? word : group.name, page: null });
  return html`<li class="card tile">
    <h3>
      ${canChoose
        ? html`<button type="button" class="link" aria-pressed=${isChosen} onClick=${choose} title=${isChosen ? "Show all" : "Show only these"}>${group.name}</button>`
        : group.name}
    </h3>
    <p class="quiet">
      ${counted(group.devices, "device")} in ${counted(group.pools, "pool")}${group.faults > 0 && html`, <span class="bad">${counted(group.faults, "fault")}</span>`}
    </p>
    <${StateBar} states=${group.states} devices=${group.devices} />
    ${[...group.capacities].map(([key, sum]) => html`<${SumBar} key=${key} sum=${sum} />`)}
  </li>`;
}

// --- Node by node -----------------------------------------------------------------------------------------------

const texts = new WeakMap();

/** What a search looks at, in lower case; kept until a pool of the node changes. */
function textOf(name, world, reports) {
  const node = world.nodes.get(name);
  const known = texts.get(reports[0] ?? node);
  if (known && known.node === node && known.reports.length === reports.length && reports.every((each, index) => each === known.reports[index])) {
    return known.text;
  }
  const labels = Object.entries(node?.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const pools = reports.flatMap(({ driver, pool, devices }) => [
    driver,
    pool,
    ...devices.flatMap((device) => [device.name, ...device.holdings.map(({ claim }) => claim.key)]),
  ]);
  const text = [name, ...labels, ...pools].join(" ").toLowerCase();
  if (reports[0] ?? node) texts.set(reports[0] ?? node, { node, reports, text });
  return text;
}

function findNodes(world, { q, driver, state, sort }) {
  const names = [...(world.reportsOfNode(ANY_NODE).length ? [ANY_NODE] : []), ...nodeNames(world)];
  const query = wordsOf(q);
  const isWanted = (name) => {
    const reports = world.reportsOfNode(name);
    return (
      (!driver || reports.some((report) => report.driver === driver)) &&
      (!state || reports.some((report) => report.devices.some((device) => device.state === state))) &&
      (!query.length || matchesQuery(textOf(name, world, reports), query))
    );
  };
  const found = query.length || driver || state ? names.filter(isWanted) : names;
  return sort ? inOrderOfLoad(found, world, sort) : found;
}

const ORDERS = [["", "name"], ["full", "use, fullest first"], ["free", "use, freest first"]];

function inOrderOfLoad(names, world, sort) {
  const loads = new Map(names.map((name) => [name, loadOf(world.reportsOfNode(name))]));
  const direction = sort === "full" ? -1 : 1;
  return names.sort((one, other) => direction * (loads.get(one) - loads.get(other)));
}

function NodeCard({ name, world, driver }) {
  const reports = world.reportsOfNode(name).filter((report) => !driver || report.driver === driver);
  const node = world.nodes.get(name);
  const load = Math.round(loadOf(reports) * 100);
  return html`<li class="card node">
    <div class="card-head">
      <h3>${name === ANY_NODE ? "For several nodes" : html`<a href=${href("nodes", name)}>${name}</a>`}</h3>
      ${name !== ANY_NODE && html`<${NodeBadges} node=${node} />`}
      ${reports.length > 0 && html`<span class="load" title="of what the devices have is given out">${load}%</span>`}
    </div>
    ${reports.map((report) => html`<${PoolDevices} key=${`${report.driver}/${report.pool}/${report.fault}`} report=${report} name=${name} />`)}
    ${!reports.length && html`<p class="quiet">no devices</p>`}
    <${Holders} reports=${reports} />
  </li>`;
}

export function NodeBadges({ node }) {
  return html`
    ${!node && html`<span class="badge">not registered</span>`}
    ${node && !node.isReady && html`<span class="badge bad">not ready</span>`}
    ${node?.isCordoned && html`<span class="badge warn">cordoned</span>`}
  `;
}

function PoolDevices({ report, name }) {
  // Where there are many, those that somebody has tell more than those that nobody has.
  const used = report.devices.filter(({ state }) => state !== "free");
  const free = report.devices.filter(({ state }) => state === "free");
  const shown = report.devices.length <= DEVICES_SHOWN ? report.devices : [...used, ...free].slice(0, DEVICES_SHOWN);
  const hidden = report.devices.length - shown.length;
  return html`<div class="pool">
    <p class="pool-name">${report.driver}${report.pool !== name && html` <span class="quiet">${report.pool}</span>`}</p>
    ${report.fault && html`<p class="fault">The pool ${report.fault}.</p>`}
    <ul class="devices">
      ${shown.map((device) => html`<${DeviceRow} key=${device.name} report=${device} />`)}
    </ul>
    ${hidden > 0 && html`<p class="quiet">and ${moreText(summaryOf(report), shown, hidden, name)}</p>`}
  </div>`;
}

function moreText(summary, shown, hidden, name) {
  const free = summary.states.free - shown.filter(({ state }) => state === "free").length;
  const text = `${counted(hidden, "more device")}, ${free} of them free`;
  return name === ANY_NODE ? text : html`<a href=${href("nodes", name)}>${text}</a>`;
}

/** Who has something here, as the key to the colours. */
function Holders({ reports }) {
  const claims = new Map();
  for (const report of reports) for (const device of report.devices) for (const { claim } of device.holdings) claims.set(claim.key, claim);
  if (!claims.size) return null;
  const shown = [...claims.values()].slice(0, CLAIMS_SHOWN);
  const more = claims.size - shown.length;
  return html`<ul class="holders" aria-label="Claims">
    ${shown.map((claim) => html`<li key=${claim.key}><${ClaimLink} claim=${claim} /></li>`)}
    ${more > 0 && html`<li class="quiet">and ${more} more</li>`}
  </ul>`;
}

function NoDevices({ world }) {
  return html`<div class="empty card">
    <h2>No devices yet</h2>
    <p>${world.nodes.size ? `There ${world.nodes.size === 1 ? "is" : "are"} ${counted(world.nodes.size, "node")}, but no driver has published a device.` : "There are no nodes, and no driver has published a device."}</p>
    <p>Pretend some nodes with eight graphics cards each:</p>
    <pre><code>dralloc node --fake 3 --profile gpu</code></pre>
    <p>They appear here by themselves. Other profiles are <code>nic</code>, <code>mig</code>, <code>cpu</code> and <code>tpu</code>.</p>
  </div>`;
}
