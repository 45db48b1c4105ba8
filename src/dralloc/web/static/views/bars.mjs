// Devices as bars: the part of each capacity that each claim has, in the claim's colour.
//
// Every bar has a text equivalent, for screen readers and for readers who cannot distinguish the colours.

import { parseQuantity, printQuantity, ratio, roughly } from "../model/quantity.mjs";
import { taintText } from "../model/taint_rules.mjs";
import { amountOf, STATES } from "../model/grouping.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { deviceHref, hrefOf } from "./routes.mjs";
import { counted } from "./text.mjs";

// More shares could not be distinguished.
const SEGMENTS_MAX = 48;

const GOLDEN_ANGLE = 137.508;
const HUES_MAX = 100_000;
const hues = new Map();

/** Returns a fixed hue for a claim. Consecutive claims get distant hues. */
export function hueOf(key) {
  if (hues.size >= HUES_MAX) hues.clear();
  if (!hues.has(key)) hues.set(key, Math.round((265 + hues.size * GOLDEN_ANGLE) % 360));
  return hues.get(key);
}

export function ClaimLink({ claim, namespace = true }) {
  return html`<a class="claim-link" href=${hrefOf("claims", claim.key)}
    ><span class="dot" style=${{ "--hue": hueOf(claim.key) }}></span>${namespace ? claim.key : claim.name}</a>`;
}

/** One device: its name as a link, a bar for each capacity, and the amounts. `isAlone`: under a heading that names it. */
export function DeviceRow({ report, place = null, label = report.name, highlight = null, isAlone = false }) {
  const { state, block, capacities, taints } = report;
  const bars = capacities.length ? capacities : [null];
  return html`<li class=${isAlone ? "device alone" : "device"} data-state=${state}>
    ${!isAlone && html`<span class="device-name">${place ? html`<a href=${deviceHref(place, report.name)}>${label}</a>` : label}${taints.length > 0 && html`<${Taints} taints=${taints} />`}</span>`}
    <span class="device-bars">
      ${bars.map(
        (capacity) => html`<span class="device-bar" key=${capacity?.name}>
          <${Bar} report=${report} capacity=${capacity} highlight=${highlight} />
          <span class="amount">${capacity ? amountText(capacity) : stateText(report)}</span>
        </span>`,
      )}
      ${block && !isAlone && html`<span class="device-block">blocked by ${block.cause}</span>`}
    </span>
    <span class="hidden-text">${inWords(report)}</span>
  </li>`;
}

export function blockText(block) {
  return block ? `blocked by ${block.cause}: ${block.reason}` : undefined;
}

function Taints({ taints }) {
  const said = taints.map(taintText).join(", ");
  return html` <span class="taint" title=${`tainted: ${said}`}><span aria-hidden="true">▲</span><span class="hidden-text">tainted ${said}</span></span>`;
}

function Bar({ report, capacity, highlight }) {
  return html`<span class="bar" aria-hidden="true">
    ${segments(report, capacity).map(
      ({ claim, width, said }) => html`<a
        key=${claim?.uid ?? "rest"}
        class=${highlight && claim?.key !== highlight ? "segment faded" : "segment"}
        tabindex="-1"
        href=${claim ? hrefOf("claims", claim.key) : undefined}
        title=${said}
        style=${{ "--hue": claim ? hueOf(claim.key) : 0, width: `${width * 100}%` }}
      ></a>`,
    )}
  </span>`;
}

function segments(report, capacity) {
  // Admin access consumes nothing, so it is not in the bar.
  const holders = report.holdings.filter(({ result }) => !result.adminAccess);
  const shown = holders.slice(0, SEGMENTS_MAX).map(({ claim, result }) => ({
    claim,
    width: widthOf(result, capacity, holders.length),
    said: `${claim.key}: ${amountHeld(result, capacity)}`,
  }));
  const rest = holders.slice(SEGMENTS_MAX);
  if (rest.length) {
    const width = rest.reduce((sum, { result }) => sum + widthOf(result, capacity, holders.length), 0);
    shown.push({ claim: null, width, said: `${counted(rest.length, "more share")}` });
  }
  return shown;
}

function widthOf(result, capacity, holders) {
  if (result.shareID === undefined || result.shareID === null) return 1;
  const consumed = capacity && result.consumedCapacity?.[capacity.name];
  if (capacity) return consumed ? ratio(parseQuantity(consumed).nanos, capacity.value.nanos) : 0;
  return 1 / holders;
}

function amountHeld(result, capacity) {
  const consumed = capacity && result.consumedCapacity?.[capacity.name];
  if (consumed) return `${consumed} of ${capacity.name}`;
  return result.shareID ? "a share" : "the whole device";
}

function amountText({ used, value, name }) {
  return html`<span class="used">${printQuantity(used)}</span><span class="of"> / ${printQuantity(value)} ${name}</span>`;
}

function stateText({ state, isShareable, holdings }) {
  return isShareable && holdings.length ? counted(holdings.length, "share") : state;
}

function inWords({ state, block, holdings }) {
  if (!holdings.length) return blockText(block) ?? state;
  const held = holdings.map(({ claim, result }) => {
    const amounts = Object.entries(result.consumedCapacity ?? {}).map(([name, amount]) => `${name} ${amount}`);
    return [claim.key, ...amounts, ...(result.adminAccess ? ["admin access"] : [])].join(" ");
  });
  return `${blockText(block) ?? state}, allocated to ${held.slice(0, 20).join("; ")}${held.length > 20 ? ` and ${held.length - 20} more` : ""}`;
}

/** Number of devices in each state. */
export function StateBar({ states, devices }) {
  const present = STATES.filter((state) => states[state]);
  return html`<div class="states">
    <span class="bar state-bar" aria-hidden="true">
      ${present.map((state) => html`<span class="state-segment" key=${state} data-state=${state} style=${{ width: `${(states[state] / devices) * 100}%` }}></span>`)}
    </span>
    <ul class="legend">
      ${present.map((state) => html`<li key=${state}><span class="dot" data-state=${state}></span>${states[state].toLocaleString("en")} ${state}</li>`)}
    </ul>
  </div>`;
}

/** Total use of one kind of hardware; `largest` is the largest request that fits on one device, or null. */
export function SumBar({ sum, largest }) {
  const part = ratio(sum.used, sum.value);
  const [used, value, available] = [sum.used, sum.value, sum.available].map((nanos) => amountOf(sum, nanos));
  const exact = `${printQuantity(used)} of ${printQuantity(value)} used, ${printQuantity(available)} available`;
  return html`<div class="sum">
    <span class="sum-name">${sum.name}</span>
    <span class="bar" aria-hidden="true">${sum.used > 0n && html`<span class="segment plain" style=${{ width: `${part * 100}%` }}></span>`}</span>
    <span class="amount" title=${exact}><span class="used">${roughly(used)}</span><span class="of"> / ${roughly(value)}</span></span>
    <span class="sum-said">${roughly(available)} available${largest !== null && `, largest request ${printQuantity(largest)}`}</span>
  </div>`;
}
