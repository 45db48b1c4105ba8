// One node, or one pool that several nodes share: counters, and all details of each device.

import { sharedWith } from "../model/places.mjs";
import { printQuantity, ratio } from "../model/quantity.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { DeviceDetails } from "./device.mjs";
import { NodeBadges } from "./places.mjs";
import { deviceHref, href } from "./routes.mjs";
import { counted } from "./text.mjs";

// With more devices, only those in use are shown in full.
const FULL_MAX = 64;

export function NodeView({ world, route }) {
  const { name } = route;
  const node = world.nodes.get(name);
  const reports = [...world.reportsOfNode(name), ...sharedWith(world, name)];
  if (!node && !reports.length) return html`<p class="empty" role="status">There is no node ${name}, and no device for it. <a href="#/">See all nodes</a></p>`;
  return html`
    <p class="badges"><${NodeBadges} node=${node} />${Object.entries(node?.labels ?? {}).map(([key, value]) => html`<span class="badge" key=${key}>${key}=${value}</span>`)}</p>
    ${reports.map((report) => html`<${PoolSection} key=${`${report.driver}/${report.pool}`} report=${report} world=${world} />`)}
    ${!reports.length && html`<p class="empty">No driver has published a device for this node.</p>`}
  `;
}

export function PoolView({ world, route }) {
  const reports = world.pools.get(`${route.driver}/${route.name}`)?.reports(world.nodes, world.rules) ?? [];
  if (!reports.length) return html`<p class="empty" role="status">There is no pool ${route.name} of ${route.driver}. <a href="#/">See all devices</a></p>`;
  return reports.map((report) => html`<${PoolSection} key=${`${report.node}/${report.fault}`} report=${report} world=${world} />`);
}

function PoolSection({ report, world }) {
  const shown = report.devices.length <= FULL_MAX ? report.devices : report.devices.filter(({ state }) => state !== "free");
  return html`<section class="card" aria-label=${`Pool ${report.pool} of ${report.driver}`}>
    <div class="card-head"><h2>${report.driver}</h2><span class="quiet">pool <a href=${href("pools", report.driver, report.pool)}>${report.pool}</a>, ${counted(report.devices.length, "device")}${report.node ? "" : ", for several nodes"}</span></div>
    ${report.fault && html`<p class="fault">The pool ${report.fault}.</p>`}
    ${report.counters.length > 0 && html`<${Counters} counters=${report.counters} />`}
    <ul class="device-details">
      ${shown.map(
        (device) => html`<li class="device-detail" key=${device.name}>
          <h3><a href=${deviceHref(report, device.name)}>${device.name}</a></h3>
          <${DeviceDetails} device=${device} world=${world} level=${4} />
        </li>`,
      )}
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
          <span class="amount">${printQuantity(left)} of ${printQuantity(value)} available</span>
        </li>`;
      })}
    </ul>
  </details>`;
}
