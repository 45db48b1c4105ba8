// One pod: its node, the explanation of its state, and its claims.

import { claimState } from "../model/story.mjs";
import { resultsOf } from "../model/world.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { ClaimLink, DeviceRow } from "./bars.mjs";
import { Events } from "./events.mjs";
import { Explanation } from "./explanation.mjs";
import { Ways } from "./find.mjs";
import { href } from "./routes.mjs";
import { age } from "./text.mjs";

export function PodView({ world, route, version, connection }) {
  const pod = world.pods.get(route.key);
  if (!pod) {
    return html`<p class="empty" role="status">
      There is no pod ${route.key}. It may have been deleted. <a href="#/pods">See all pods</a>
    </p>`;
  }
  return html`
    <p class="badges">
      <span class="badge" data-phase=${pod.phase}>${pod.isLeaving ? "Terminating" : pod.phase}</span>
      ${pod.node && html`<a class="badge" href=${href("nodes", pod.node)}>on ${pod.node}</a>`}
      ${pod.group && html`<a class="badge" href=${href("podgroups", pod.namespace, pod.group)}>group ${pod.group}</a>`}
      <span class="quiet">created ${age(pod.creationTimestamp)} ago${pod.owner ? ` by ${pod.owner.kind.toLowerCase()} ${pod.owner.name}` : ""}</span>
    </p>
    <${Explanation} connection=${connection} kind="pods" subject=${pod.key} version=${version} />
    <section aria-labelledby="claims">
      <h2 id="claims">Claims</h2>
      ${pod.claims.length > 0 ? html`<ul class="cards">${pod.claims.map((entry) => html`<${PodClaim} key=${entry.entry} entry=${entry} pod=${pod} world=${world} />`)}</ul>` : html`<p class="quiet">none</p>`}
    </section>
    <${Events} connection=${connection} kind="Pod" namespace=${pod.namespace} name=${pod.name} changed=${`${pod.phase} ${pod.node} ${pod.message}`} />
  `;
}

function PodClaim({ entry, pod, world }) {
  const claim = entry.claim && world.claims.get(`${pod.namespace}/${entry.claim}`);
  return html`<li class="card">
    <div class="card-head"><h3>${entry.entry}</h3>${claim && html`<span class="badge" data-state=${claimState(claim)}>${claimState(claim)}</span>`}</div>
    ${claim ? html`<p><${ClaimLink} claim=${claim} /> <${Ways} claims=${[claim]} world=${world} /></p>` : html`<p class="fault">${missingText(entry)}</p>`}
    <ul class="devices">
      ${(claim ? resultsOf(claim) : []).map((result, index) => {
        const found = world.device(result.driver, result.pool, result.device);
        return found && html`<${DeviceRow} key=${index} report=${found.device} place=${result} label=${`${result.pool}/${result.device}`} highlight=${claim.key} />`;
      })}
    </ul>
  </li>`;
}

function missingText({ claim, template }) {
  if (claim) return `There is no claim ${claim}.`;
  return `The claim of template ${template} does not exist yet.`;
}
