// All devices: totals by hardware, driver or node label, then node by node, each device as bars.

import { BY_DRIVER, BY_HARDWARE, grouped, groupingLabels, nodeNames, SEVERAL, STATES, UNLABELLED } from "../model/grouping.mjs";
import { collator } from "../model/names.mjs";
import { claimState } from "../model/story.mjs";
import { html, useMemo } from "../vendor/htm-preact.mjs";
import { StateBar, SumBar } from "./bars.mjs";
import { Fragmentation } from "./fragmentation.mjs";
import { PlaceMap } from "./place_map.mjs";
import { Choice, Filter, pageOf, Pages } from "./paging.mjs";
import { findPlaces, ORDERS, PlaceCard } from "./places.mjs";
import { setParameters } from "./routes.mjs";
import { counted } from "./text.mjs";

const PLACES_PER_PAGE = 12;
// For fewer nodes the cards are enough.
const MAPPED_FROM = 25;

export function DevicesView({ world, route, version, connection }) {
  const { q = "", by = BY_HARDWARE, driver = "", product = "", state = "", sort = "" } = route.parameters;
  const groups = useMemo(() => grouped(world, by), [world, version, by]);
  const found = useMemo(() => findPlaces(world, { q, driver, product, state, sort }), [world, version, q, driver, product, state, sort]);
  if (!groups.length) return html`<${NoDevices} world=${world} />`;
  const { page, pages, shown } = pageOf(found, route.parameters, PLACES_PER_PAGE);
  return html`
    <${Totals} world=${world} groups=${groups} />
    <section aria-labelledby="groups">
      <div class="section-head">
        <h2 id="groups">Totals</h2>
        <label class="filter">by <${Choice} name="by" value=${by} options=${[[BY_HARDWARE, "hardware"], [BY_DRIVER, "driver"], ...groupingLabels(world).map((label) => [label, label])]} /></label>
      </div>
      <ul class="tiles">
        ${groups.map((group) => html`<${GroupTile} key=${`${group.driver}/${group.name}`} group=${group} by=${by} chosen=${{ q, driver, product }} />`)}
      </ul>
    </section>
    <${Fragmentation} connection=${connection} driver=${driver} />
    <section aria-labelledby="nodes">
      <div class="section-head">
        <h2 id="nodes">Nodes</h2>
        <${Filter} label="Filter nodes" placeholder="node, device, label, claim" value=${q} found=${countedPlaces(found)} />
        <label class="filter">device state <${Choice} name="state" value=${state} options=${[["", "any"], ...STATES.map((each) => [each, each])]} /></label>
        <label class="filter">sort by <${Choice} name="sort" value=${sort} options=${ORDERS} /></label>
      </div>
      ${found.length >= MAPPED_FROM && html`<${PlaceMap} places=${found} version=${version} />`}
      ${shown.length
        ? html`<ul class="cards">
            ${shown.map((place) => html`<${PlaceCard} key=${place.path.join("/")} place=${place} world=${world} driver=${driver} />`)}
          </ul>`
        : html`<p class="empty">No node matches. <button type="button" class="link" onClick=${() => setParameters({ q: "", state: "", driver: "", product: "", page: null })}>Show all nodes</button></p>`}
      <${Pages} page=${page} pages=${pages} label="Pages of nodes" />
    </section>
  `;
}

function countedPlaces(places) {
  const pools = places.filter(({ node }) => node === null).length;
  const nodes = counted(places.length - pools, "node");
  return pools ? `${nodes}, ${counted(pools, "shared pool")}` : nodes;
}

// --- Totals -----------------------------------------------------------------------------------------------------

function Totals({ world, groups }) {
  const devices = groups.reduce((sum, group) => sum + group.devices, 0);
  const free = groups.reduce((sum, group) => sum + group.states.free, 0);
  const blocked = groups.reduce((sum, group) => sum + group.states.blocked, 0);
  const tainted = groups.reduce((sum, group) => sum + group.tainted, 0);
  const parts = [[free, "free"], [blocked, "blocked"], [tainted, "tainted"]].filter(([count, word]) => count || word === "free");
  const said = parts.map(([count, word]) => `${count.toLocaleString("en")} ${word}`).join(", ");
  let [pending, notReady] = [0, 0];
  for (const claim of world.claims.values()) if (claimState(claim) === "pending") pending += 1;
  for (const node of world.nodes.values()) if (!node.isReady) notReady += 1;
  return html`<dl class="totals">
    <${Total} name="Nodes" value=${nodeNames(world).length} said=${notReady ? `${notReady} not ready` : "all ready"} isBad=${notReady > 0} />
    <${Total} name="Devices" value=${devices} said=${said} />
    <${Total} name="Claims" value=${world.claims.size} said=${pending ? `${pending.toLocaleString("en")} pending` : "none pending"} isBad=${pending > 0} />
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

/** What the address has when the group is chosen; null for a group that cannot be. */
function choiceOf({ driver, name }, by) {
  if (by === BY_HARDWARE) return { driver, product: name };
  if (by === BY_DRIVER) return { driver: name, product: "" };
  return name !== SEVERAL && name !== UNLABELLED ? { q: `${by}=${name}` } : null;
}

/** One group; selecting it filters the nodes. */
function GroupTile({ group, by, chosen }) {
  const choice = choiceOf(group, by);
  const isChosen = choice !== null && Object.entries(choice).every(([key, value]) => chosen[key] === value);
  const choose = () => setParameters({ ...(isChosen ? Object.fromEntries(Object.keys(choice).map((key) => [key, ""])) : choice), page: null });
  const title = [group.driver, group.name].filter(Boolean).join(" ");
  return html`<li class="card tile">
    <h3>
      ${choice
        ? html`<button type="button" class="link" aria-pressed=${isChosen} onClick=${choose} title=${isChosen ? "Show all" : "Show only these"}>${title}</button>`
        : title}
    </h3>
    <p class="quiet">
      ${counted(group.devices, "device")} in ${counted(group.pools, "pool")}${group.faults > 0 && html`, <span class="bad">${counted(group.faults, "fault")}</span>`}
    </p>
    <${StateBar} states=${group.states} devices=${group.devices} />
    <${Amounts} group=${group} />
  </li>`;
}

/** The largest amounts say most; cards have counters for every slot and engine. */
function Amounts({ group }) {
  const sums = [...group.hardware.values()].sort((one, other) => (one.value === other.value ? collator.compare(one.name, other.name) : one.value < other.value ? 1 : -1));
  const bars = sums.map((sum) => html`<${SumBar} key=${`${sum.driver}/${sum.name}`} sum=${sum} largest=${group.largest.get(sum.name) ?? null} />`);
  const more = bars.slice(AMOUNTS_SHOWN);
  return html`${bars.slice(0, AMOUNTS_SHOWN)}
    ${more.length > 0 && html`<details><summary>${counted(more.length, "more amount")}</summary>${more}</details>`}`;
}

const AMOUNTS_SHOWN = 3;

function NoDevices({ world }) {
  return html`<div class="empty card">
    <h2>No devices yet</h2>
    <p>${world.nodes.size ? `There ${world.nodes.size === 1 ? "is" : "are"} ${counted(world.nodes.size, "node")}, but no driver has published a device.` : "There are no nodes, and no driver has published a device."}</p>
    <p>Simulate three nodes with eight GPUs each:</p>
    <pre><code>dralloc node --fake 3 --profile gpu</code></pre>
    <p>They appear here automatically. Other profiles: <code>nic</code>, <code>mig</code>, <code>cpu</code> and <code>tpu</code>.</p>
  </div>`;
}
