// One claim: the explanation of its state, and its story; requested, allocated and rounded, reserved.

import { collator } from "../model/names.mjs";
import { storyOf } from "../model/story.mjs";
import { html, useMemo } from "../vendor/htm-preact.mjs";
import { DeviceRow, hueOf } from "./bars.mjs";
import { ClaimStory } from "./claim_story.mjs";
import { Explanation } from "./explanation.mjs";
import { deviceHref, href, hrefOf } from "./routes.mjs";
import { Cell, Name, Row, Table } from "./table.mjs";
import { age, counted } from "./text.mjs";

const USERS_SHOWN = 24;

export function ClaimView({ world, route, version, connection }) {
  const claim = world.claims.get(route.key);
  if (!claim) {
    return html`<p class="empty" role="status">There is no claim ${route.key}. <a href="#/claims">See all claims</a></p>
      <${Explanation} connection=${connection} kind="claims" subject=${route.key} version=${version} />
      <${ClaimStory} connection=${connection} subject=${route.key} version=${version} />`;
  }
  const story = storyOf(claim, world);
  return html`
    <p class="badges">
      <span class="swatch" style=${{ "--hue": hueOf(claim.key) }} aria-hidden="true"></span>
      <span class="badge" data-state=${story.state}>${story.state}</span>
      ${story.nodes.map((name) => html`<a class="badge" key=${name} href=${href("nodes", name)}>on ${name}</a>`)}
      <span class="quiet">created ${age(claim.creationTimestamp)} ago${ownerText(claim)}</span>
    </p>
    <${Explanation} connection=${connection} kind="claims" subject=${claim.key} version=${version} />
    <${ClaimStory} connection=${connection} subject=${claim.key} version=${version} />
    <ol class="story">
      <${Asked} story=${story} /><${Given} story=${story} /><${Used} story=${story} world=${world} version=${version} />
      ${story.reports.length > 0 && html`<${Reported} story=${story} />`}
    </ol>
  `;
}

function ownerText({ ownerReferences }) {
  const owner = ownerReferences?.[0];
  return owner ? ` for ${owner.kind.toLowerCase()} ${owner.name}` : "";
}

function Step({ title, said, children }) {
  return html`<li class="step card"><div class="card-head"><h2>${title}</h2>${said && html`<span class="quiet">${said}</span>`}</div>${children}</li>`;
}

// --- Requested ----------------------------------------------------------------------------------------------------

function Asked({ story }) {
  return html`<${Step} title="Requested" said=${counted(story.requests.length, "request")}>
    ${story.requests.map(
      (request) => html`<div class="request" key=${request.name}>
        <h3>${request.name}</h3>
        ${request.hasAlternatives
          ? html`<p class="quiet">the first of ${counted(request.wishes.length, "alternative")} that fits</p>
              <ol class="wishes">${request.wishes.map((wish) => html`<${Alternative} key=${wish.name} wish=${wish} />`)}</ol>`
          : html`<${Wish} wish=${request.wishes[0]} />`}
      </div>`,
    )}
    ${story.constraints.length > 0 &&
    html`<h3>Constraints</h3>
      <ul class="plain">${story.constraints.map(({ text, attribute }, index) => html`<li key=${index}>${text} <code>${attribute}</code></li>`)}</ul>`}
  <//>`;
}

const FATES = {
  chosen: { sign: "✓", text: "chosen" },
  "passed over": { sign: "✗", text: "did not fit" },
  "not needed": { sign: "–", text: "not needed" },
  open: { sign: "·", text: "pending" },
};

function Alternative({ wish }) {
  const { sign, text } = FATES[wish.fate];
  return html`<li class="wish" data-fate=${wish.fate}>
    <span class="fate-sign" aria-hidden="true">${sign}</span>
    <div>
      <p><strong>${wish.name}</strong> <span class="fate">${text}</span></p>
      <${Wish} wish=${wish} />
    </div>
  </li>`;
}

function Wish({ wish }) {
  const what = wish.count === "all" ? "all devices" : counted(wish.count, "device");
  return html`
    <p>${what} of class <code>${wish.deviceClass}</code>${wish.isAdmin && ", admin access: does not reserve devices"}</p>
    ${wish.capacity.map(([name, amount]) => html`<p key=${name}><strong>${amount}</strong> of ${name}${wish.isTotal ? " in total" : wish.count !== 1 && " each"}</p>`)}
    ${wish.limits.map(([name, amount]) => html`<p key=${name}>up to <strong>${amount}</strong> of ${name}</p>`)}
    ${wish.preference && html`<p>device preference: <code>${wish.preference}</code></p>`}
    ${wish.selectors.map((expression, index) => html`<pre class="cel" key=${index}><code>${expression}</code></pre>`)}
  `;
}

// --- Allocated ----------------------------------------------------------------------------------------------------

function Given({ story }) {
  if (!story.claim.status.allocation) {
    return html`<${Step} title="Allocated" said="nothing yet"><p>Devices are allocated when a pod that uses the claim is scheduled.</p><//>`;
  }
  const given = story.requests.flatMap((request) => request.given);
  return html`<${Step} title="Allocated" said=${counted(given.length, "device")}>
    <ul class="given">
      ${given.map((each, index) => html`<${GivenDevice} key=${index} given=${each} claim=${story.claim} />`)}
    </ul>
    ${!given.length && html`<p class="quiet">No request needs a device.</p>`}
  <//>`;
}

function GivenDevice({ given, claim }) {
  const { result, found, isShare, amounts, limits } = given;
  return html`<li>
    <h3>
      <a href=${deviceHref(result, result.device, result.shareID)}>${result.pool}/${result.device}</a>
    </h3>
    <p class="quiet">${result.driver}, for ${result.request}, ${result.adminAccess ? "admin access" : isShare ? html`a share <code>${result.shareID}</code>` : "whole"}</p>
    ${!found || found.device.state === "gone" ? html`<p class="fault">The device is no longer published.</p>` : html`<ul class="devices"><${DeviceRow} report=${found.device} place=${result} highlight=${claim.key} /></ul>`}
    ${amounts.length > 0 && html`<${Amounts} amounts=${amounts} isShare=${isShare} />`}
    ${limits.length > 0 && html`<p>limits for the driver: ${limits.map(([name, amount]) => `${amount} of ${name}`).join(", ")}</p>`}
  </li>`;
}

function Amounts({ amounts, isShare }) {
  return html`<div class="table-frame"><${Table} class="amounts" columns=${["Capacity", "Requested", "Rule", "Allocated", "Of"]}>
    ${amounts.map(
      (amount) => html`<${Row} key=${amount.name}>
        <${Name}>${amount.name}<//>
        <${Cell} of="Requested">${amount.asked ?? html`<span class="quiet">nothing</span>`}<//>
        <${Cell} of="Rule" class="quiet">${amount.rule}<//>
        <${Cell} of="Allocated"><strong>${isShare ? amount.given : "all"}</strong> <span class="badge" data-why=${amount.why}>${amount.why}</span><//>
        <${Cell} of="Of">${amount.total ?? html`<span class="quiet">unknown</span>`}<//>
      <//>`,
    )}
  <//></div>`;
}

// --- Reserved -------------------------------------------------------------------------------------------------------

function Used({ story, world, version }) {
  const { claim, consumers } = story;
  const pods = useMemo(() => podsOf(claim, world), [claim, world, version]);
  const workloads = consumers.filter(({ resource, apiGroup }) => resource !== "pods" || apiGroup);
  const query = new URLSearchParams({ q: claim.name });
  return html`<${Step} title="Used by" said=${pods.length ? counted(pods.length, "pod") : "no pod"}>
    ${workloads.map(({ resource, name, uid }) => html`<p key=${uid}>Reserved for <strong>${resource}/${name}</strong>: all its pods may use the claim.</p>`)}
    ${story.isForAnyPod && !workloads.length && html`<p>Any pod that refers to the claim may use it.</p>`}
    ${story.workload && !workloads.length && html`<p>To be reserved for <strong>${story.workload.resource}/${story.workload.name}</strong>.</p>`}
    ${pods.length > 0 &&
    html`<ul class="chips">
      ${pods.slice(0, USERS_SHOWN).map((pod) => html`<li key=${pod.key}><a href=${hrefOf("pods", pod.key)}>${pod.name}</a> <span class="quiet">${pod.phase}</span></li>`)}
      ${pods.length > USERS_SHOWN && html`<li><a href=${`#/pods?${query}`}>and ${(pods.length - USERS_SHOWN).toLocaleString("en")} more</a></li>`}
    </ul>`}
    ${!pods.length && html`<p class="quiet">No pod refers to it.</p>`}
  <//>`;
}

function podsOf(claim, world) {
  const found = [];
  for (const pod of world.pods.values()) {
    if (pod.namespace === claim.namespace && pod.claims.some((entry) => entry.claim === claim.name)) found.push(pod);
  }
  return found.sort((one, other) => collator.compare(one.name, other.name));
}

function Reported({ story }) {
  return html`<${Step} title="Reported by drivers" said=${counted(story.reports.length, "device")}>
    <ul class="plain">
      ${story.reports.map(
        ({ driver, pool, device, conditions, networkData }, index) => html`<li key=${index}>
          <strong>${pool}/${device}</strong> <span class="quiet">${driver}</span>
          ${(conditions ?? []).map(({ type, status: truth, message }) => html` <span class="badge" key=${type}>${type} ${truth}</span>${message && html` <span class="quiet">${message}</span>`}`)}
          ${networkData && html`<p class="quiet">${[networkData.interfaceName, networkData.hardwareAddress, ...(networkData.ips ?? [])].filter(Boolean).join(", ")}</p>`}
        </li>`,
      )}
    </ul>
  <//>`;
}
