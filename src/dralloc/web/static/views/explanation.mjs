// What blocks a pod, a claim or a group of pods, and what would help: the answer of `dralloc explain`, which the server computes.

import { Explainer } from "../api/explainer.mjs";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { ReasonBars } from "./reasons.mjs";
import { href } from "./routes.mjs";

const MEMBERS_SHOWN_MAX = 50;
const STATES = { Placed: "placed", Fits: "would fit", Missing: "missing", Waiting: "waiting" };

export function Explanation({ connection, kind, subject, version }) {
  const found = useAnswer(connection, `explain/${kind}`, subject, version);
  return html`<section class="card explanation" aria-labelledby="explanation" aria-busy=${!found}>
    <h2 id="explanation">Explanation</h2>
    ${found?.answer ? html`<${Answer} ...${found.answer} />` : html`<p class="quiet">${found ? found.message : "Asking the server …"}</p>`}
  </section>`;
}

/** The server's answer to a question about an object; asked again while the cluster changes. Null until there is one. */
export function useAnswer(connection, question, subject, version) {
  const [found, setFound] = useState(null);
  const explainer = useRef(null);
  useEffect(() => {
    setFound(null);
    explainer.current = new Explainer(connection, question, subject, setFound);
    return () => explainer.current.stop();
  }, [connection, question, subject]);
  useEffect(() => explainer.current.changed(), [connection, question, subject, version]);
  return found;
}

function Answer({ explanation, text, notes }) {
  const { message, blockers = [], members = [], missing = {}, preemption } = explanation;
  // Of a group, this is about the first member that has no place.
  const { nodes, availableNodes = [], reasons = [], nearestMisses = [] } = members.length > 0 ? missing : explanation;
  const remedies = [...minCountRemedy(explanation), ...nearestMisses];
  return html`
    <p class=${blockers.length ? "answer fault" : "answer"}>${message}</p>
    ${blockers.length > 1 &&
    html`<h3>What blocks it, in this order</h3>
      <ol class="blockers">${blockers.map((blocker, index) => html`<li key=${index}>${blocker.message}</li>`)}</ol>`}
    ${members.length > 0 && html`<${Members} members=${members} namespace=${explanation.subject.split(" ").at(-1).split("/")[0]} />`}
    ${reasons.length > 0 &&
    html`<h3>${members.length > 0 ? "Nodes for the first pod that is missing" : "Nodes"}</h3>
      <${ReasonBars} available=${availableNodes.length} total=${nodes} parts=${reasons.map((reason) => ({ nodes: reason.nodes.length, text: reason.message }))} />`}
    ${remedies.length > 0 &&
    html`<h3>It would fit if you</h3>
      <ul class="remedies">${remedies.map((remedy, index) => html`<li key=${index}>${remedy.message} <span class="quiet">${remedy.node}</span></li>`)}</ul>`}
    ${preemption &&
    html`<h3>Preemption</h3>
      <p class="preemption">It ${preemption.message}</p>`}
    ${notes.map((note) => html`<p class="hint" key=${note}>Note: ${note}</p>`)}
    <details>
      <summary>The whole answer, as <code>dralloc explain ${explanation.subject.replace("pod group", "podgroup")}</code> prints it</summary>
      <pre class="explanation-text" tabindex="0">${text}</pre>
    </details>
  `;
}

/** Nodes and devices of the members of a group; those without a place have the reason. */
function Members({ members, namespace }) {
  const shown = members.slice(0, MEMBERS_SHOWN_MAX);
  return html`<h3>Members</h3>
    <ul class="members">
      ${shown.map(
        ({ pod, state, node, devices = [], message }) => html`<li key=${pod} data-state=${state}>
          <a href=${href("pods", namespace, pod)}>${pod}</a> <span class="badge" data-member=${state}>${STATES[state] ?? state}</span>
          ${node && html` on <a href=${href("nodes", node)}>${node}</a>`}
          ${devices.length > 0 && html` <span class="quiet">${devices.join(", ")}</span>`}
          ${message && html` <span class="quiet">${message}</span>`}
        </li>`,
      )}
    </ul>
    ${members.length > shown.length && html`<p class="quiet">and ${(members.length - shown.length).toLocaleString("en")} more</p>`}`;
}

function minCountRemedy({ smallerMinCount }) {
  return smallerMinCount ? [{ message: `set spec.schedulingPolicy.gang.minCount to ${smallerMinCount}`, node: "" }] : [];
}
