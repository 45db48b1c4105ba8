// All claims: their devices and consumers.

import { claimState } from "../model/story.mjs";
import { collator } from "../model/names.mjs";
import { resultsOf } from "../model/world.mjs";
import { html, useMemo } from "../vendor/htm-preact.mjs";
import { ClaimLink } from "./bars.mjs";
import { FirstClaim } from "./first_claim.mjs";
import { Choice, Filter, matchesQuery, pageOf, Pages, wordsOf } from "./paging.mjs";
import { deviceHref } from "./routes.mjs";
import { Cell, Name, Row, Table } from "./table.mjs";
import { age, counted } from "./text.mjs";

const CLAIMS_PER_PAGE = 40;
const STATES = ["pending", "allocated", "reserved", "deleted"];

export function ClaimsView({ world, route, version }) {
  const { q = "", state = "" } = route.parameters;
  const found = useMemo(() => findClaims(world, q, state), [world, version, q, state]);
  if (!world.claims.size) return html`<${NoClaims} world=${world} />`;
  const { page, pages, shown } = pageOf(found, route.parameters, CLAIMS_PER_PAGE);
  return html`
    <div class="section-head">
      <${Filter} label="Filter claims" placeholder="claim, device, class, pod" value=${q} found=${counted(found.length, "claim")} />
      <label class="filter">state <${Choice} name="state" value=${state} options=${[["", "any"], ...STATES.map((each) => [each, each])]} /></label>
    </div>
    <div class="table-frame card">
      <${Table} columns=${["Claim", "State", "Devices", "Reserved for", ["Age", "number"]]}>
        ${shown.map((claim) => html`<${ClaimRow} key=${claim.key} claim=${claim} />`)}
      <//>
    </div>
    ${!found.length && html`<p class="empty">No claim matches.</p>`}
    <${Pages} page=${page} pages=${pages} label="Pages of claims" />
  `;
}

function findClaims(world, q, state) {
  const query = wordsOf(q);
  return [...world.claims.values()]
    .filter((claim) => (!state || claimState(claim).split(",").includes(state)) && (!query.length || matchesQuery(textOf(claim), query)))
    .sort((one, other) => collator.compare(one.key, other.key));
}

const texts = new WeakMap();

function textOf(claim) {
  let text = texts.get(claim);
  if (text === undefined) {
    const classes = (claim.spec.devices?.requests ?? []).flatMap(({ exactly, firstAvailable = [] }) =>
      [exactly, ...firstAvailable].filter(Boolean).map(({ deviceClassName }) => deviceClassName),
    );
    const devices = resultsOf(claim).map(({ driver, pool, device }) => `${driver}/${pool}/${device}`);
    const users = (claim.status.reservedFor ?? []).map(({ name }) => name);
    text = [claim.key, ...classes, ...devices, ...users].join(" ").toLowerCase();
    texts.set(claim, text);
  }
  return text;
}

function ClaimRow({ claim }) {
  const state = claimState(claim);
  return html`<${Row}>
    <${Name}><${ClaimLink} claim=${claim} /><//>
    <${Cell} of="State"><span class="badge" data-state=${state}>${state}</span><//>
    <${Cell} of="Devices"><${Given} claim=${claim} /><//>
    <${Cell} of="Reserved for" class="quiet">${usersText(claim)}<//>
    <${Cell} of="Age" class="number quiet">${age(claim.creationTimestamp)}<//>
  <//>`;
}

function Given({ claim }) {
  const results = resultsOf(claim);
  if (!results.length) return html`<span class="quiet">none</span>`;
  return html`<ul class="chips">
    ${results.slice(0, 4).map(
      (result, index) => html`<li key=${index} title=${`${result.driver}/${result.pool}/${result.device}`}>
        <a href=${deviceHref(result, result.device, result.shareID)}>${result.pool}/${result.device}</a>
        ${Object.entries(result.consumedCapacity ?? {}).map(([name, amount]) => html` <span class="quiet" key=${name}>${amount} ${name}${limitText(result, name)}</span>`)}
      </li>`,
    )}
    ${results.length > 4 && html`<li class="quiet">and ${results.length - 4} more</li>`}
  </ul>`;
}

function limitText(result, name) {
  const limit = result.capacityLimits?.[name];
  return limit ? ` (up to ${limit})` : "";
}

function usersText(claim) {
  const users = claim.status.reservedFor ?? [];
  if (users.length === 1) return `${users[0].resource}/${users[0].name}`;
  if (users.length) return counted(users.length, users[0].resource.replace(/s$/, ""));
  return claim.status.allocation?.reservedForAnyPod ? "any pod" : "none";
}

function NoClaims({ world }) {
  return html`<div class="empty card">
    <h2>No claims yet</h2>
    <${FirstClaim} world=${world} />
  </div>`;
}
