// What happened to a claim, from its events and its status: the server tells it, as `dralloc explain claim` does.

import { html } from "../vendor/htm-preact.mjs";
import { useAnswer } from "./explanation.mjs";
import { href } from "./routes.mjs";
import { age } from "./text.mjs";

/** Nothing for a claim of which nothing is known. */
export function ClaimStory({ connection, subject, version }) {
  const found = useAnswer(connection, "story/claims", subject, version);
  const steps = found?.answer?.steps ?? [];
  if (!steps.length && !found?.message) return null;
  const [namespace] = subject.split("/");
  return html`<section class="card" aria-labelledby="story">
    <h2 id="story">What happened</h2>
    ${found.message && html`<p class="quiet">${found.message}</p>`}
    <ol class="events">${steps.map((step, index) => html`<${Step} key=${index} step=${step} namespace=${namespace} />`)}</ol>
  </section>`;
}

function Step({ step, namespace }) {
  const { reason, at, until, message, count, isWarning, pod } = step;
  return html`<li class="event">
    <span class="quiet">${at ? html`<time datetime=${at} title=${at}>${age(at)} ago</time>` : "now"}</span>
    <span class=${isWarning ? "badge warn" : "badge"}>${reason}</span>
    <span class="event-text">
      <${Message} text=${message} pod=${pod} namespace=${namespace} />
      ${count > 1 && html` <span class="quiet">reported ${count} times, last ${age(until)} ago</span>`}
    </span>
  </li>`;
}

/** The text, with the mention of the pod as a link. */
function Message({ text, pod, namespace }) {
  const mention = pod && [`pods/${pod}`, `pod ${pod}`].find((each) => text.includes(each));
  if (!mention) return text;
  const [before, ...after] = text.split(mention);
  return html`${before}<a href=${href("pods", namespace, pod)}>${mention}</a>${after.join(mention)}`;
}
