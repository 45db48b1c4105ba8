// One node, or one pool that several nodes share: counters, and all details of each device.

import { sharedWith } from "../model/places.mjs";
import { printQuantity, ratio } from "../model/quantity.mjs";
import { taintText } from "../model/taint_rules.mjs";
import { policyText } from "../model/story.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { blockText, ClaimLink, DeviceRow } from "./bars.mjs";
import { NodeBadges } from "./places.mjs";
import { href } from "./routes.mjs";
import { attributeText, counted } from "./text.mjs";

// With more devices, only those in use are shown in full.
const FULL_MAX = 64;

export function NodeView({ world, route }) {
  const { name } = route;
  const node = world.nodes.get(name);
  const reports = [...world.reportsOfNode(name), ...sharedWith(world, name)];
  if (!node && !reports.length) return html`<p class="empty" role="status">There is no node ${name}, and no device for it. <a href="#/">See all nodes</a></p>`;
  return html`
    <p class="badges"><${NodeBadges} node=${node} />${Object.entries(node?.labels ?? {}).map(([key, value]) => html`<span class="badge" key=${key}>${key}=${value}</span>`)}</p>
    ${reports.map((report) => html`<${PoolSection} key=${`${report.driver}/${report.pool}`} report=${report} />`)}
    ${!reports.length && html`<p class="empty">No driver has published a device for this node.</p>`}
  `;
}

export function PoolView({ world, route }) {
  const reports = world.pools.get(`${route.driver}/${route.name}`)?.reports(world.nodes, world.rules) ?? [];
  if (!reports.length) return html`<p class="empty" role="status">There is no pool ${route.name} of ${route.driver}. <a href="#/">See all devices</a></p>`;
  return reports.map((report) => html`<${PoolSection} key=${`${report.node}/${report.fault}`} report=${report} />`);
}

function PoolSection({ report }) {
  const shown = report.devices.length <= FULL_MAX ? report.devices : report.devices.filter(({ state }) => state !== "free");
  return html`<section class="card" aria-label=${`Pool ${report.pool} of ${report.driver}`}>
    <div class="card-head"><h2>${report.driver}</h2><span class="quiet">pool <a href=${href("pools", report.driver, report.pool)}>${report.pool}</a>, ${counted(report.devices.length, "device")}${report.node ? "" : ", for several nodes"}</span></div>
    ${report.fault && html`<p class="fault">The pool ${report.fault}.</p>`}
    ${report.counters.length > 0 && html`<${Counters} counters=${report.counters} />`}
    <ul class="device-details">
      ${shown.map((device) => html`<${DeviceDetails} key=${device.name} device=${device} />`)}
    </ul>
    ${shown.length < report.devices.length && html`<p class="quiet">${counted(report.devices.length - shown.length, "free device")} not shown</p>`}
    <p class="quiet">Computed with the default feature gates, regardless of the server's.</p>
  </section>`;
}

function Counters({ counters }) {
  return html`<details class="counters">
    <summary>${counted(counters.length, "counter")} shared by devices</summary>
    <ul>
      ${counters.map(({ counterSet, name, value, left }) => {
        const used = value.nanos - left.nanos;
        return html`<li class="sum" key=${`${counterSet}/${name}`}>
          <span class="sum-name">${counterSet}/${name}</span>
          <span class="bar" aria-hidden="true">${used > 0n && html`<span class="segment plain" style=${{ width: `${ratio(used, value.nanos) * 100}%` }}></span>`}</span>
          <span class="amount">${printQuantity(left)} of ${printQuantity(value)} left</span>
        </li>`;
      })}
    </ul>
  </details>`;
}

function DeviceDetails({ device }) {
  const { name, state, isShareable, holdings, taints } = device;
  const attributes = Object.entries(device.device.attributes ?? {});
  return html`<li class="device-detail">
    <div class="card-head">
      <h3>${name}</h3>
      <span class="badge" data-state=${state}>${state}</span>
      ${isShareable && html`<span class="quiet">shareable</span>`}
      ${taints.map((taint) => html`<span class="badge warn" key=${taintText(taint)}>${taintText(taint)}</span>`)}
    </div>
    <ul class="devices"><${DeviceRow} report=${device} /></ul>
    <div class="detail-columns">
      <div>
        <h4>Held by</h4>
        ${holdings.length
          ? html`<ul class="plain">
              ${holdings.map(
                ({ claim, result }, index) => html`<li key=${`${claim.key}/${index}`}>
                  <${ClaimLink} claim=${claim} /> <span class="quiet">${heldText(result)}</span>
                </li>`,
              )}
            </ul>`
          : html`<p class="quiet">none</p>`}
      </div>
      <div>
        <h4>Available</h4>
        <${Room} device=${device} />
      </div>
      <div>
        <h4>Attributes</h4>
        ${attributes.length
          ? html`<dl class="attributes">${attributes.map(([key, value]) => html`<div key=${key}><dt>${key}</dt><dd>${attributeText(value)}</dd></div>`)}</dl>`
          : html`<p class="quiet">none</p>`}
      </div>
    </div>
  </li>`;
}

function heldText(result) {
  const amounts = Object.entries(result.consumedCapacity ?? {}).map(([name, amount]) => `${amount} of ${name}`);
  for (const [name, limit] of Object.entries(result.capacityLimits ?? {})) amounts.push(`up to ${limit} of ${name}`);
  if (result.adminAccess) amounts.push("admin access");
  return amounts.join(", ") || (result.shareID ? "a share" : "the whole device");
}

/** What is still available on the device. */
function Room({ device }) {
  const { state, block, isShareable, capacities } = device;
  if (block) return html`<p>none: ${blockText(block)}</p>`;
  if (state === "full") return html`<p>none</p>`;
  if (!isShareable) return html`<p>the whole device</p>`;
  if (!capacities.length) return html`<p>unlimited shares</p>`;
  return html`<ul class="plain">${capacities.map((capacity) => html`<li key=${capacity.name}>${roomText(capacity)}</li>`)}</ul>`;
}

function roomText({ name, free, value, largest, policy }) {
  const most = largest === null || free.nanos === 0n ? "no request fits" : `requests up to ${printQuantity(largest)}`;
  return html`${name}: ${most} <span class="quiet">(${printQuantity(free)} free; shares: ${policyText(policy, printQuantity(value))})</span>`;
}
