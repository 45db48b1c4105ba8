// Pods: pending ones grouped by reason, and a list of all.

import { groupedByReason, isPending, reasonsOf } from "../model/pods.mjs";
import { collator } from "../model/names.mjs";
import { html, useMemo } from "../vendor/htm-preact.mjs";
import { FirstClaim } from "./first_claim.mjs";
import { Choice, Filter, matchesQuery, pageOf, Pages, wordsOf } from "./paging.mjs";
import { ReasonBars } from "./reasons.mjs";
import { href, hrefOf } from "./routes.mjs";
import { Cell, Name, Row, Table } from "./table.mjs";
import { age, counted } from "./text.mjs";

const PODS_PER_PAGE = 40;
const GROUPS_SHOWN = 8;
const PODS_SHOWN = 12;
const PHASES = ["Pending", "Running", "Succeeded", "Failed"];

export function PodsView({ world, route, version }) {
  const { q = "", phase = "" } = route.parameters;
  const groups = useMemo(() => groupedByReason([...world.pods.values()].filter(isPending)), [world, version]);
  const found = useMemo(() => findPods(world, q, phase), [world, version, q, phase]);
  if (!world.pods.size) return html`<${NoPods} world=${world} />`;
  const { page, pages, shown } = pageOf(found, route.parameters, PODS_PER_PAGE);
  return html`
    <section aria-labelledby="pending">
      <h2 id="pending">Pending</h2>
      ${groups.length
        ? html`<ul class="pending">${groups.slice(0, GROUPS_SHOWN).map((group) => html`<${PendingGroup} key=${group.message} group=${group} />`)}</ul>`
        : html`<p class="quiet">All pods are scheduled.</p>`}
      ${groups.length > GROUPS_SHOWN && html`<p class="quiet">and ${counted(groups.length - GROUPS_SHOWN, "more reason")}</p>`}
    </section>
    <section aria-labelledby="all">
      <div class="section-head">
        <h2 id="all">All pods</h2>
        <${Filter} label="Filter pods" placeholder="pod, node, claim, owner" value=${q} found=${counted(found.length, "pod")} />
        <label class="filter">phase <${Choice} name="phase" value=${phase} options=${[["", "any"], ...PHASES.map((each) => [each, each])]} /></label>
      </div>
      <div class="table-frame card">
        <${Table} columns=${["Pod", "Phase", "Node", "Claims", ["Age", "number"]]}>
          ${shown.map((pod) => html`<${PodRow} key=${pod.key} pod=${pod} />`)}
        <//>
      </div>
      ${!found.length && html`<p class="empty">No pod matches.</p>`}
      <${Pages} page=${page} pages=${pages} label="Pages of pods" />
    </section>
  `;
}

function findPods(world, q, phase) {
  const query = wordsOf(q);
  return [...world.pods.values()]
    .filter((pod) => (!phase || pod.phase === phase) && (!query.length || matchesQuery(textOf(pod), query)))
    .sort((one, other) => collator.compare(one.key, other.key));
}

function textOf(pod) {
  return [pod.key, pod.node, pod.owner?.name, ...pod.claims.map(({ claim }) => claim)].filter(Boolean).join(" ").toLowerCase();
}

function PodRow({ pod }) {
  return html`<${Row}>
    <${Name}><a href=${hrefOf("pods", pod.key)}>${pod.key}</a><//>
    <${Cell} of="Phase"><span class="badge" data-phase=${pod.phase}>${pod.isLeaving ? "Terminating" : pod.phase}</span><//>
    <${Cell} of="Node">${pod.node ? html`<a href=${href("nodes", pod.node)}>${pod.node}</a>` : html`<span class="quiet">none</span>`}<//>
    <${Cell} of="Claims"><${PodClaims} pod=${pod} /><//>
    <${Cell} of="Age" class="number quiet">${age(pod.creationTimestamp)}<//>
  <//>`;
}

function PodClaims({ pod }) {
  if (!pod.claims.length) return html`<span class="quiet">none</span>`;
  return html`<ul class="chips">
    ${pod.claims.map(
      ({ entry, template, claim }) => html`<li key=${entry}>
        ${claim ? html`<a href=${hrefOf("claims", `${pod.namespace}/${claim}`)}>${claim}</a>` : html`<span class="quiet">not created yet from template ${template}</span>`}
      </li>`,
    )}
  </ul>`;
}

// --- Why pods are pending -----------------------------------------------------------------------------------------

function PendingGroup({ group }) {
  const { pods } = group;
  return html`<li class="card">
    <div class="card-head">
      <h3>${counted(pods.length, "pod")}</h3>
      <ul class="chips">
        ${pods.slice(0, PODS_SHOWN).map((pod) => html`<li key=${pod.key}><a href=${hrefOf("pods", pod.key)}>${pod.key}</a></li>`)}
        ${pods.length > PODS_SHOWN && html`<li class="quiet">and ${(pods.length - PODS_SHOWN).toLocaleString("en")} more</li>`}
      </ul>
    </div>
    <${Reported} pod=${pods[0]} />
  </li>`;
}

/** What a scheduler reported in the condition of the pods. Nothing is concluded from a missing report. */
function Reported({ pod }) {
  if (!pod.message) return html`<p class="quiet">No scheduler has reported on them. The page of a pod says what blocks it.</p>`;
  return html`<${ReasonBars} ...${reasonsOf(pod.message)} />
    <p class="hint">The page of a pod shows changes that would help.</p>`;
}

function NoPods({ world }) {
  return html`<div class="empty card">
    <h2>No pods yet</h2>
    <${FirstClaim} world=${world} />
  </div>`;
}
