// Reasons of nodes, with a bar for the number of nodes of each.

import { html } from "../vendor/htm-preact.mjs";
import { counted } from "./text.mjs";

/** `nodes` of a part is null, and so is `total`, where a text has no numbers of nodes. */
export function ReasonBars({ available, total, parts }) {
  return html`
    ${total !== null && html`<p class="quiet">${available} of ${counted(total, "node")} available</p>`}
    <ul class="reasons">
      ${parts.map(
        ({ nodes, text }, index) => html`<li key=${index} class="reason">
          ${nodes !== null && html`<span class="reason-count">${counted(nodes, "node")}</span><span class="bar" aria-hidden="true"><span class="segment reason-part" style=${{ width: `${total ? (nodes / total) * 100 : 100}%` }}></span></span>`}
          <span class="reason-text">${text}</span>
        </li>`,
      )}
    </ul>
  `;
}
