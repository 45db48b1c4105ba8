// Where there are no claims or no pods yet: how to make one.

import { firstClaim } from "../model/first_claim.mjs";
import { html } from "../vendor/htm-preact.mjs";

export function FirstClaim({ world }) {
  const [className] = world.classes.keys();
  if (!className) return html`<p>There is no class of devices to ask for yet. <a href="#/">See which devices there are</a></p>`;
  return html`<p>Ask for one of the devices, with a pod that uses it:</p>
    <pre><code>${firstClaim(className)}</code></pre>`;
}
