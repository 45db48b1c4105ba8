// One device: its state, the shares that claims have of it, what is available, and its attributes.

import { policyText } from "../model/story.mjs";
import { printQuantity } from "../model/quantity.mjs";
import { taintText } from "../model/taint_rules.mjs";
import { html, useLayoutEffect, useRef } from "../vendor/htm-preact.mjs";
import { blockText, ClaimLink, DeviceRow } from "./bars.mjs";
import { deviceHref, href } from "./routes.mjs";
import { attributeText, shareText } from "./text.mjs";

export function DeviceView({ world, route }) {
  const { driver, pool, name, parameters } = route;
  const found = world.device(driver, pool, name);
  if (!found) return html`<p class="empty" role="status">There is no device ${name} in pool ${pool} of ${driver}. <a href="#/">See all devices</a></p>`;
  const { report, device } = found;
  const { share = "" } = parameters;
  const isReleased = share && !device.holdings.some(({ result }) => result.shareID === share);
  return html`
    <p class="badges">
      ${report.node ? html`<a class="badge" href=${href("nodes", report.node)}>on ${report.node}</a>` : html`<span class="badge">for several nodes</span>`}
      <a class="badge" href=${href("pools", driver, pool)}>pool ${pool}</a>
      <span class="quiet">${driver}</span>
    </p>
    ${isReleased && html`<p class="empty" role="status">No claim has the share ${share} any more.</p>`}
    ${report.fault && html`<p class="fault">The pool ${report.fault}.</p>`}
    <section class="card" aria-label=${`Device ${name}`}><${DeviceDetails} device=${device} world=${world} level=${2} share=${share} place=${{ driver, pool }} /></section>
  `;
}

/** `level` is that of its headings; the share with the ID `share` is marked. */
export function DeviceDetails({ device, world, level, share = "", place = null }) {
  const { state, isShareable, taints } = device;
  const attributes = Object.entries(device.device.attributes ?? {});
  const Title = `h${level}`;
  return html`
    <div class="card-head">
      <span class="badge" data-state=${state}>${state}</span>
      ${isShareable && html`<span class="quiet">shareable</span>`}
      ${taints.map((taint) => html`<span class="badge warn" key=${taintText(taint)}>${taintText(taint)}</span>`)}
    </div>
    <ul class="devices"><${DeviceRow} report=${device} isAlone=${true} /></ul>
    <div class="detail-columns">
      <div>
        <${Title} class="part">Allocated to<//>
        <${Shares} device=${device} world=${world} share=${share} place=${place} />
      </div>
      <div>
        <${Title} class="part">Available<//>
        <${Room} device=${device} />
      </div>
      <div>
        <${Title} class="part">Attributes<//>
        ${attributes.length
          ? html`<dl class="attributes">${attributes.map(([key, value]) => html`<div key=${key}><dt>${key}</dt><dd>${attributeText(value)}</dd></div>`)}</dl>`
          : html`<p class="quiet">none</p>`}
      </div>
    </div>
  `;
}

function Shares({ device, world, share, place }) {
  if (!device.holdings.length) return html`<p class="quiet">no claim</p>`;
  return html`<ul class="plain">
    ${device.holdings.map(({ claim, result }, index) => html`<${Share} key=${`${claim.key}/${index}`} claim=${claim} result=${result} world=${world} isChosen=${Boolean(share) && result.shareID === share} place=${place} />`)}
  </ul>`;
}

/** A share, or the whole device: the claim that has it, and for whom it is reserved. */
function Share({ claim, result, world, isChosen, place }) {
  const row = useRef(null);
  useLayoutEffect(() => {
    if (isChosen) row.current.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const pods = (claim.status.reservedFor ?? []).filter(({ resource, apiGroup }) => resource === "pods" && !apiGroup);
  return html`<li ref=${row} class=${isChosen ? "share chosen" : "share"} aria-current=${isChosen ? "true" : undefined}>
    <${ClaimLink} claim=${claim} /> <span>${shareText(result)}</span>
    ${pods.slice(0, PODS_SHOWN).map(({ name }) => html` <span class="quiet" key=${name}>reserved for ${world.pods.has(`${claim.namespace}/${name}`) ? html`<a href=${href("pods", claim.namespace, name)}>${name}</a>` : name}</span>`)}
    ${pods.length > PODS_SHOWN && html` <span class="quiet">and ${pods.length - PODS_SHOWN} more pods</span>`}
    ${place && result.shareID && html`<span class="share-id">share <a href=${deviceHref(place, result.device, result.shareID)}>${result.shareID}</a></span>`}
  </li>`;
}

const PODS_SHOWN = 3;

/** What is still available on the device. */
function Room({ device }) {
  const { state, block, isShareable, capacities } = device;
  if (block) return html`<p>none: ${blockText(block)}</p>`;
  if (state === "full") return html`<p>none: the device is full</p>`;
  if (state === "gone") return html`<p>none: no slice publishes the device any more</p>`;
  if (!isShareable) return html`<p>the whole device</p>`;
  if (!capacities.length) return html`<p>unlimited shares</p>`;
  return html`<ul class="plain">${capacities.map((capacity) => html`<li key=${capacity.name}>${roomText(capacity)}</li>`)}</ul>`;
}

function roomText({ name, free, value, largest, policy }) {
  const most = largest === null || free.nanos === 0n ? "no request fits" : `requests up to ${printQuantity(largest)}`;
  return html`${name}: ${most} <span class="quiet">(${printQuantity(free)} available; shares: ${policyText(policy, printQuantity(value))})</span>`;
}
