// Instructions for a cluster without claims or pods.

import { firstClaim } from "../model/first_claim.mjs";
import { html } from "../vendor/htm-preact.mjs";

export function FirstClaim({ world }) {
  const [className] = world.classes.keys();
  if (!className) return html`<p>There is no device class yet. <a href="#/">See all devices</a></p>`;
  return html`<p>Create a claim for a device, and a pod that uses it:</p>
    <pre><code>${firstClaim(className)}</code></pre>`;
}
