// The frame: navigation, the state of the connection, and the view that the address names.

import { isWaiting } from "../model/pods.mjs";
import { html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { ClaimView } from "./claim.mjs";
import { ClaimsView } from "./claims.mjs";
import { DevicesView } from "./devices.mjs";
import { NodeView, PoolView } from "./node.mjs";
import { PodView } from "./pod.mjs";
import { PodsView } from "./pods.mjs";
import { SignIn } from "./sign_in.mjs";
import { ThemeSwitch } from "./theme_switch.mjs";

const VIEWS = { devices: DevicesView, node: NodeView, pool: PoolView, claims: ClaimsView, claim: ClaimView, pods: PodsView, pod: PodView };
const TABS = [
  { name: "Devices", href: "#/", views: ["devices", "node", "pool"] },
  { name: "Claims", href: "#/claims", views: ["claims", "claim"] },
  { name: "Pods", href: "#/pods", views: ["pods", "pod"] },
];

export function App({ world, status, route, version, connection, signIn }) {
  const waiting = countWaiting(world, version);
  const View = VIEWS[route.view] ?? Nowhere;
  return html`
    <a class="skip" href="#content" onClick=${skipToContent}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="28" height="28" />dralloc</a>
      <nav aria-label="Views">
        <ul>
          ${TABS.map(
            ({ name, href, views }) => html`<li key=${name}>
              <a href=${href} aria-current=${views.includes(route.view) ? "page" : undefined}>
                ${name}${name === "Pods" && waiting > 0 && html` <span class="badge warn">${waiting.toLocaleString("en")}<span class="hidden-text"> waiting</span></span>`}
              </a>
            </li>`,
          )}
        </ul>
      </nav>
      <div class="top-right"><${ConnectionState} status=${status} /><${ThemeSwitch} /></div>
    </header>
    <main id="content" tabindex="-1">
      ${status.phase === "refused"
        ? html`<${SignIn} status=${status} signIn=${signIn} />`
        : html`<${Heading} route=${route} />${status.phase === "loading" || status.phase === "connecting"
            ? html`<${Reading} world=${world} status=${status} />`
            : html`<${Guarded} key=${route.view}><${View} world=${world} route=${route} version=${version} connection=${connection} /><//>`}`}
    </main>
  `;
}

/** A view that fails says so, and leaves the others usable. */
function Guarded({ children }) {
  const [error, tryAgain] = useErrorBoundary((thrown) => console.error(thrown));
  if (!error) return children;
  return html`<p class="fault" role="alert">
    This view has a fault: ${error.message}. <button type="button" class="link" onClick=${tryAgain}>Try again</button>
  </p>`;
}

let known = { version: -1, waiting: 0 };

function countWaiting(world, version) {
  if (known.version !== version) {
    let waiting = 0;
    for (const pod of world.pods.values()) if (isWaiting(pod)) waiting += 1;
    known = { version, waiting };
  }
  return known.waiting;
}

function skipToContent(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

const TITLES = { devices: "Devices", claims: "Claims", pods: "Pods" };

/** The title of the view; it takes the focus when another view is opened, so that those who listen hear where they are. */
function Heading({ route }) {
  const title = TITLES[route.view] ?? route.key ?? route.name ?? "Nothing here";
  const heading = useRef(null);
  const shown = useRef(title);
  useLayoutEffect(() => {
    document.title = `${title} · dralloc`;
    if (shown.current !== title) heading.current.focus();
    shown.current = title;
  }, [title]);
  return html`<h1 tabindex="-1" ref=${heading}>${title}</h1>`;
}

/** Until everything is there: half a cluster would be a wrong picture. */
function Reading({ world, status }) {
  const read = [world.nodes.size, world.claims.size, world.slices.size, world.pods.size].reduce((sum, size) => sum + size);
  return html`<div class="empty card">
    <h2>${status.phase === "loading" ? "Reading what is there" : "The server does not answer"}</h2>
    <p>${status.phase === "loading" ? `${read.toLocaleString("en")} objects so far` : `${status.message ?? "It is tried again and again."}`}</p>
  </div>`;
}

function Nowhere() {
  return html`<p class="empty">There is nothing at this address. <a href="#/">See all devices</a></p>`;
}

// --- The connection ---------------------------------------------------------------------------------------------

function ConnectionState({ status }) {
  const text = textOf(status);
  return html`<span class="connection" data-phase=${status.phase} title=${status.message}>
    <span class="lamp" aria-hidden="true"></span>
    <span role="status">${text}</span>
    ${status.retryAt && html`<${Countdown} until=${status.retryAt} />`}
  </span>`;
}

function textOf({ phase, kind }) {
  switch (phase) {
    case "live":
      return "Live";
    case "loading":
      return kind ? `Reading ${kind}` : "Reading";
    case "reconnecting":
      return "Reconnecting";
    case "refused":
      return "Not signed in";
    default:
      return "Connecting";
  }
}

function Countdown({ until }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [until]);
  const seconds = Math.ceil((until - now) / 1000);
  return seconds > 0 ? html`<span class="countdown" aria-hidden="true">in ${seconds} s</span>` : null;
}
