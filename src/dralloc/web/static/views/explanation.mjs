// What blocks a pod or a claim, and what would help: the answer of `dralloc explain`, which the server computes.

import { Explainer } from "../api/explainer.mjs";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { ReasonBars } from "./reasons.mjs";

export function Explanation({ connection, kind, subject, version }) {
  const [found, setFound] = useState(null);
  const explainer = useRef(null);
  useEffect(() => {
    setFound(null);
    explainer.current = new Explainer(connection, kind, subject, setFound);
    return () => explainer.current.stop();
  }, [connection, kind, subject]);
  useEffect(() => explainer.current.changed(), [connection, kind, subject, version]);
  return html`<section class="card explanation" aria-labelledby="explanation" aria-busy=${!found}>
    <h2 id="explanation">Explanation</h2>
    ${found?.answer ? html`<${Answer} ...${found.answer} />` : html`<p class="quiet">${found ? found.message : "Asking the server …"}</p>`}
  </section>`;
}

function Answer({ explanation, text, notes }) {
  const { message, blockers = [], nodes, availableNodes = [], reasons = [], nearestMisses = [] } = explanation;
  return html`
    <p class=${blockers.length ? "answer fault" : "answer"}>${message}</p>
    ${blockers.length > 1 &&
    html`<h3>What blocks it, in this order</h3>
      <ol class="blockers">${blockers.map((blocker, index) => html`<li key=${index}>${blocker.message}</li>`)}</ol>`}
    ${reasons.length > 0 &&
    html`<h3>Nodes</h3>
      <${ReasonBars} available=${availableNodes.length} total=${nodes} parts=${reasons.map((reason) => ({ nodes: reason.nodes.length, text: reason.message }))} />`}
    ${nearestMisses.length > 0 &&
    html`<h3>It would fit if you</h3>
      <ul class="remedies">${nearestMisses.map((remedy, index) => html`<li key=${index}>${remedy.message} <span class="quiet">${remedy.node}</span></li>`)}</ul>`}
    ${notes.map((note) => html`<p class="hint" key=${note}>Note: ${note}</p>`)}
    <details>
      <summary>The whole answer, as <code>dralloc explain ${explanation.subject}</code> prints it</summary>
      <pre class="explanation-text" tabindex="0">${text}</pre>
    </details>
  `;
}
