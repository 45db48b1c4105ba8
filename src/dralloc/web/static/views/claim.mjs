// One claim, told as a story: asked, given and rounded, used.

import { storyOf } from "../model/story.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { DeviceRow, hueOf } from "./bars.mjs";
import { href, hrefOf } from "./routes.mjs";
import { age, counted } from "./text.mjs";

const USERS_SHOWN = 24;

export function ClaimView({ world, route }) {
  const claim = world.claims.get(route.key);
  if (!claim) {
    return html`<p class="empty" role="status">
      There is no claim ${route.key}. It may have been deleted. <a href="#/claims">See all claims</a>
    </p>`;
  }
  const story = storyOf(claim, world);
  return html`
    <p class="badges">
      <span class="swatch" style=${{ "--hue": hueOf(claim.key) }} aria-hidden="true"></span>
      <span class="badge" data-state=${story.state}>${story.state}</span>
      ${story.nodes.map((name) => html`<a class="badge" key=${name} href=${href("nodes", name)}>on ${name}</a>`)}
      <span class="quiet">created ${age(claim.creationTimestamp)} ago${ownerText(claim)}</span>
    </p>
    <ol class="story">
      <${Asked} story=${story} /><${Given} story=${story} /><${Used} story=${story} world=${world} />
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

// --- Asked --------------------------------------------------------------------------------------------------------

function Asked({ story }) {
  return html`<${Step} title="Asked" said=${counted(story.requests.length, "request")}>
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
    html`<h3>Together</h3>
      <ul class="plain">${story.constraints.map(({ text, attribute }, index) => html`<li key=${index}>${text} <code>${attribute}</code></li>`)}</ul>`}
  <//>`;
}

const FATES = {
  chosen: { sign: "✓", text: "chosen" },
  "passed over": { sign: "✗", text: "did not fit there" },
  "not needed": { sign: "–", text: "not needed" },
  open: { sign: "·", text: "not decided" },
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
    <p>${what} of class <code>${wish.deviceClass}</code>${wish.isAdmin && ", for administration: nothing is taken from others"}</p>
    ${wish.capacity.map(([name, amount]) => html`<p key=${name}><strong>${amount}</strong> of ${name}${wish.count !== 1 && " each"}</p>`)}
    ${wish.selectors.map((expression, index) => html`<pre class="cel" key=${index}><code>${expression}</code></pre>`)}
  `;
}

// --- Given --------------------------------------------------------------------------------------------------------

function Given({ story }) {
  if (story.state === "waiting") {
    return html`<${Step} title="Given" said="nothing yet"><p>It gets devices when a pod that uses it is scheduled. Pods that wait say why under <a href="#/pods">Pods</a>.</p><//>`;
  }
  const given = story.requests.flatMap((request) => request.given);
  return html`<${Step} title="Given" said=${counted(given.length, "device")}>
    <ul class="given">
      ${given.map((each, index) => html`<${GivenDevice} key=${index} given=${each} claim=${story.claim} />`)}
    </ul>
    ${!given.length && html`<p class="quiet">The requests are met without any device.</p>`}
  <//>`;
}

function GivenDevice({ given, claim }) {
  const { result, found, isShare, amounts } = given;
  return html`<li>
    <h3>
      ${found?.report.node ? html`<a href=${href("nodes", found.report.node)}>${result.pool}/${result.device}</a>` : `${result.pool}/${result.device}`}
    </h3>
    <p class="quiet">${result.driver}, for ${result.request}, ${result.adminAccess ? "admin access" : isShare ? html`a share <code>${result.shareID}</code>` : "whole"}</p>
    ${!found || found.device.state === "gone" ? html`<p class="fault">No slice has this device any more.</p>` : html`<ul class="devices"><${DeviceRow} report=${found.device} highlight=${claim.key} /></ul>`}
    ${amounts.length > 0 && html`<${Amounts} amounts=${amounts} isShare=${isShare} />`}
  </li>`;
}

function Amounts({ amounts, isShare }) {
  return html`<div class="table-frame"><table class="amounts">
    <thead><tr><th scope="col">Capacity</th><th scope="col">Asked</th><th scope="col">Rule</th><th scope="col">Given</th><th scope="col">Of</th></tr></thead>
    <tbody>
      ${amounts.map(
        (amount) => html`<tr key=${amount.name}>
          <th scope="row">${amount.name}</th>
          <td>${amount.asked ?? html`<span class="quiet">nothing</span>`}</td>
          <td class="quiet">${amount.rule}</td>
          <td><strong>${isShare ? amount.given : "all"}</strong> <span class="badge" data-why=${amount.why}>${amount.why}</span></td>
          <td>${amount.total ?? html`<span class="quiet">unknown</span>`}</td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

// --- Used -----------------------------------------------------------------------------------------------------------

function Used({ story, world }) {
  const { consumers, claim } = story;
  const pods = consumers.filter(({ resource, apiGroup }) => resource === "pods" && !apiGroup);
  const others = consumers.filter((each) => !pods.includes(each));
  const said = consumers.length ? counted(consumers.length, "reservation") : "nobody";
  return html`<${Step} title="Used by" said=${said}>
    ${story.workload && html`<p>Held for all pods of <strong>${story.workload.resource}/${story.workload.name}</strong>.</p>`}
    ${story.isForAnyPod && html`<p>Any pod that names the claim may use it.</p>`}
    ${others.length > 0 && html`<ul class="plain">${others.map(({ resource, name, uid }) => html`<li key=${uid}>${resource}/${name}</li>`)}</ul>`}
    ${pods.length > 0 &&
    html`<ul class="chips">
      ${pods.slice(0, USERS_SHOWN).map(({ name, uid }) => html`<li key=${uid}><${PodLink} podKey=${`${claim.namespace}/${name}`} world=${world} /></li>`)}
      ${pods.length > USERS_SHOWN && html`<li class="quiet">and ${pods.length - USERS_SHOWN} more</li>`}
    </ul>`}
    ${!consumers.length && html`<p class="quiet">No pod has it reserved.</p>`}
  <//>`;
}

function PodLink({ podKey, world }) {
  const phase = world.pods.get(podKey)?.phase ?? "gone";
  return html`<a href=${hrefOf("pods", podKey)}>${podKey.split("/")[1]}</a> <span class="quiet">${phase}</span>`;
}

function Reported({ story }) {
  return html`<${Step} title="Reported by drivers" said=${counted(story.reports.length, "device")}>
    <ul class="plain">
      ${story.reports.map(
        ({ driver, pool, device, conditions, networkData }, index) => html`<li key=${index}>
          <strong>${pool}/${device}</strong> <span class="quiet">${driver}</span>
          ${(conditions ?? []).map(({ type, status: truth, message }) => html` <span class="badge" key=${type} title=${message}>${type} ${truth}</span>`)}
          ${networkData && html`<p class="quiet">${[networkData.interfaceName, networkData.hardwareAddress, ...(networkData.ips ?? [])].filter(Boolean).join(", ")}</p>`}
        </li>`,
      )}
    </ul>
  <//>`;
}
