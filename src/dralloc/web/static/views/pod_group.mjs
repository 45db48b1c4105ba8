// A group of pods: how many of its members run, and the explanation: who has a place, what is missing for the rest.

import { isPending } from "../model/pods.mjs";
import { html } from "../vendor/htm-preact.mjs";
import { Explanation } from "./explanation.mjs";
import { counted } from "./text.mjs";

export function PodGroupView({ world, route, version, connection }) {
  const members = [...world.pods.values()].filter(({ namespace, group }) => group && `${namespace}/${group}` === route.key);
  const pending = members.filter(isPending).length;
  return html`
    <p class="badges">
      <span class="badge">${counted(members.length, "pod")}</span>
      ${pending > 0 && html`<span class="badge warn">${pending.toLocaleString("en")} pending</span>`}
    </p>
    <${Explanation} connection=${connection} kind="podgroups" subject=${route.key} version=${version} />
  `;
}
