// What the page does not show, because the user may not see it or chose one namespace.

import { html, useState } from "../vendor/htm-preact.mjs";

const NAMES = { nodes: "nodes", rules: "device taint rules", classes: "device classes", claims: "resource claims", slices: "resource slices (devices)", pods: "pods" };
// What is incomplete elsewhere without a kind.
const EFFECTS = {
  claims: "Devices look free, because claims are not counted.",
  rules: "Taints by rules are not shown.",
  nodes: "Nodes without devices are not shown.",
};

/** The kind without which a view is empty. */
const NEEDS = { devices: "slices", device: "slices", node: "slices", pool: "slices", claims: "claims", claim: "claims", pods: "pods", pod: "pods", podgroup: "pods" };

/** Returns the name of the kind that the view needs, if the user may not see it. */
export function missingFor(view, denied = []) {
  const kind = NEEDS[view];
  return denied.some(({ name }) => name === kind) ? NAMES[kind] : null;
}

export function Denied({ denied = [], namespace, chooseNamespace }) {
  if (!denied.length && !namespace) return null;
  const effects = denied.map(({ name }) => EFFECTS[name]).filter(Boolean);
  return html`<section class="denied" aria-label="Not shown">
    ${denied.length > 0 &&
    html`<p><strong>Not shown, because you lack permission:</strong> ${denied.map(({ name }) => NAMES[name]).join(", ")}. ${effects.join(" ")}</p>
      <details>
        <summary>What the server says</summary>
        <ul>${denied.map(({ name, message }) => html`<li key=${name}>${message}</li>`)}</ul>
      </details>`}
    ${namespace && html`<p>Claims and pods of namespace <strong>${namespace}</strong> only; others may use devices, too.</p>`}
    ${(namespace || denied.some(({ isNamespaced }) => isNamespaced)) && html`<${NamespaceForm} namespace=${namespace} chooseNamespace=${chooseNamespace} />`}
  </section>`;
}

/** Shows one namespace to users who may not list all. */
export function NamespaceForm({ namespace, chooseNamespace }) {
  const [name, setName] = useState(namespace);
  const submit = (event) => {
    event.preventDefault();
    if (name.trim()) chooseNamespace(name.trim());
  };
  return html`<form class="namespace" onSubmit=${submit}>
    <label for="namespace">Namespace</label>
    <input id="namespace" autocomplete="off" spellcheck=${false} value=${name} onInput=${(event) => setName(event.target.value)} />
    <button type="submit">Show</button>
    ${namespace && html`<button type="button" class="link" onClick=${() => chooseNamespace("")}>All namespaces</button>`}
  </form>`;
}
