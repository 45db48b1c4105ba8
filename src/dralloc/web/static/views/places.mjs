// Places as cards: devices as bars, with the claims as the legend. Also the search for places.

import { loadOfPlace, placesOf, sharedWith } from "../model/places.mjs";
import { percent } from "../model/quantity.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { ClaimLink, DeviceRow } from "./bars.mjs";
import { matchesQuery, wordsOf } from "./paging.mjs";
import { href } from "./routes.mjs";
import { counted } from "./text.mjs";

const DEVICES_SHOWN = 10;
const CLAIMS_SHOWN = 5;

// --- Finding ------------------------------------------------------------------------------------------------------

export const ORDERS = [["", "name"], ["most", "most allocated"], ["least", "least allocated"]];

export function findPlaces(world, { q, driver, product, state, sort }) {
  const query = wordsOf(q);
  const isWanted = (place) => {
    const { reports } = place;
    return (
      (!driver || reports.some((report) => report.driver === driver && (!product || report.devices.some((device) => device.product === product)))) &&
      (!state || reports.some((report) => report.devices.some((device) => device.state === state))) &&
      (!query.length || matchesQuery(textOf(place, reports, world), query))
    );
  };
  const places = placesOf(world);
  const found = query.length || driver || state ? places.filter(isWanted) : places;
  if (!sort) return found;
  const direction = sort === "most" ? -1 : 1;
  return found.sort((one, other) => direction * (loadOfPlace(one) - loadOfPlace(other)));
}

const texts = new WeakMap();

/** The searchable text in lower case; cached until the place changes. */
function textOf(place, reports, world) {
  const node = world.nodes.get(place.node);
  const known = texts.get(place);
  if (known && known.node === node && known.reports.length === reports.length && reports.every((each, index) => each === known.reports[index])) {
    return known.text;
  }
  const labels = Object.entries(node?.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const pools = reports.flatMap(({ driver, pool, devices }) => [
    driver,
    pool,
    ...devices.flatMap((device) => [device.name, ...device.holdings.map(({ claim }) => claim.key)]),
  ]);
  const text = [place.title, ...labels, ...pools].join(" ").toLowerCase();
  texts.set(place, { node, reports, text });
  return text;
}

// --- Cards --------------------------------------------------------------------------------------------------------

export function PlaceCard({ place, world, driver }) {
  const all = place.reports;
  const reports = all.filter((report) => !driver || report.driver === driver);
  return html`<li class="card node">
    <div class="card-head">
      <h3><a href=${href(...place.path)}>${place.title}</a></h3>
      ${place.node === null ? html`<span class="badge">for several nodes</span>` : html`<${NodeBadges} node=${world.nodes.get(place.node)} />`}
      ${all.length > 0 && html`<span class="load">${percent(loadOfPlace(place))}% allocated</span>`}
    </div>
    ${reports.map((report) => html`<${PoolDevices} key=${`${report.driver}/${report.pool}/${report.fault}`} report=${report} place=${place} />`)}
    ${!all.length && html`<${Elsewhere} place=${place} world=${world} />`}
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

/** A node without its own devices may use shared ones. */
function Elsewhere({ place, world }) {
  const devices = sharedWith(world, place.node).reduce((sum, report) => sum + report.devices.length, 0);
  return html`<p class="quiet">${devices ? html`<a href=${href(...place.path)}>${counted(devices, "device")} of pools for several nodes</a>` : "no devices"}</p>`;
}

function PoolDevices({ report, place }) {
  // With many devices, those in use come first.
  const used = report.devices.filter(({ state }) => state !== "free");
  const free = report.devices.filter(({ state }) => state === "free");
  const shown = report.devices.length <= DEVICES_SHOWN ? report.devices : [...used, ...free].slice(0, DEVICES_SHOWN);
  const hidden = report.devices.length - shown.length;
  return html`<div class="pool">
    <p class="pool-name">${report.driver}${report.pool !== place.title && html` <span class="quiet">${report.pool}</span>`}</p>
    ${report.fault && html`<p class="fault">The pool ${report.fault}.</p>`}
    <ul class="devices">
      ${shown.map((device) => html`<${DeviceRow} key=${device.name} report=${device} place=${report} />`)}
    </ul>
    ${hidden > 0 && html`<p class="quiet">and <a href=${href(...place.path)}>${moreText(free.length, shown, hidden)}</a></p>`}
  </div>`;
}

function moreText(free, shown, hidden) {
  const others = free - shown.filter(({ state }) => state === "free").length;
  return `${counted(hidden, "more device")}, ${others} of them free`;
}

/** The claims with devices here, as the legend of the colours. */
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
