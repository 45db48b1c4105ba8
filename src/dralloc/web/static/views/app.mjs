// The frame: navigation, the state of the connection, and the view for the current address.

import { isPending } from "../model/pods.mjs";
import { html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { ClaimView } from "./claim.mjs";
import { ClaimsView } from "./claims.mjs";
import { Denied, missingFor } from "./denied.mjs";
import { DevicesView } from "./devices.mjs";
import { DeviceView } from "./device.mjs";
import { FindField, FindView } from "./find.mjs";
import { NodeView, PoolView } from "./node.mjs";
import { PodView } from "./pod.mjs";
import { PodGroupView } from "./pod_group.mjs";
import { PodsView } from "./pods.mjs";
import { SignIn } from "./sign_in.mjs";
import { ThemeSwitch } from "./theme_switch.mjs";

const VIEWS = { devices: DevicesView, device: DeviceView, find: FindView, node: NodeView, pool: PoolView, claims: ClaimsView, claim: ClaimView, pods: PodsView, pod: PodView, podgroup: PodGroupView };
const TABS = [
  { name: "Devices", href: "#/", views: ["devices", "device", "node", "pool"] },
  { name: "Claims", href: "#/claims", views: ["claims", "claim"] },
  { name: "Pods", href: "#/pods", views: ["pods", "pod", "podgroup"] },
];

export function App({ world, status, route, version, connection, namespace, signIn, chooseNamespace }) {
  const pending = countPending(world, version);
  const View = VIEWS[route.view] ?? Nowhere;
  const missing = missingFor(route.view, status.denied);
  const enter = (token) => {
    if (route.view === "sign-in") location.hash = "#/";
    signIn(token);
  };
  return html`
    <a class="skip" href="#content" onClick=${skipToContent}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="28" height="28" />dralloc</a>
      <nav aria-label="Views">
        <ul>
          ${TABS.map(
            ({ name, href, views }) => html`<li key=${name}>
              <a href=${href} aria-current=${views.includes(route.view) ? "page" : undefined}>
                ${name}${name === "Pods" && pending > 0 && html` <span class="badge warn">${pending.toLocaleString("en")}<span class="hidden-text"> pending</span></span>`}
              </a>
            </li>`,
          )}
        </ul>
      </nav>
      <${FindField} route=${route} />
      <div class="top-right"><${ConnectionState} status=${status} /><a href="#/sign-in">${connection.token ? "Account" : "Sign in"}</a><${ThemeSwitch} /></div>
    </header>
    <main id="content" tabindex="-1">
      ${status.phase === "refused" || route.view === "sign-in"
        ? html`<${SignIn}
            status=${status.phase === "refused" ? status : {}}
            signIn=${enter}
            hasToken=${Boolean(connection.token)}
            namespace=${namespace}
            chooseNamespace=${chooseNamespace}
          />`
        : html`<${Heading} route=${route} />${status.phase === "loading" || status.phase === "connecting"
            ? html`<${Reading} world=${world} status=${status} />`
            : html`<${Stale} status=${status} /><${Unreadable} world=${world} /><${Denied} denied=${status.denied} namespace=${namespace} chooseNamespace=${chooseNamespace} />
                ${missing
                  ? html`<p class="empty">You may not see ${missing}.</p>`
                  : html`<${Guarded} key=${route.view}><${View} world=${world} route=${route} version=${version} connection=${connection} /><//>`}`}`}
    </main>
  `;
}

/** Shows the error of a view that fails; the other views stay usable. */
function Guarded({ children }) {
  const [error, tryAgain] = useErrorBoundary((thrown) => console.error(thrown));
  if (!error) return children;
  return html`<p class="fault" role="alert">
    Internal error in this view: ${error.message}. <button type="button" class="link" onClick=${tryAgain}>Try again</button>
  </p>`;
}

let known = { world: null, version: -1, pending: 0 };

function countPending(world, version) {
  if (known.world !== world || known.version !== version) {
    let pending = 0;
    for (const pod of world.pods.values()) if (isPending(pod)) pending += 1;
    known = { world, version, pending };
  }
  return known.pending;
}

function skipToContent(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

const TITLES = { devices: "Devices", find: "Find", claims: "Claims", pods: "Pods" };

/** The title of the view; it gets the focus when another view opens, so that screen readers announce it, unless the user is typing. */
function Heading({ route }) {
  const title = TITLES[route.view] ?? route.key ?? route.name ?? "Not found";
  const heading = useRef(null);
  const shown = useRef(title);
  useLayoutEffect(() => {
    document.title = `${title} · dralloc`;
    if (shown.current !== title && document.activeElement?.id !== "find") heading.current.focus();
    shown.current = title;
  }, [title]);
  return html`<h1 tabindex="-1" ref=${heading}>${title}</h1>`;
}

/** Shown until everything is loaded, because a partial cluster would mislead. */
function Reading({ world, status }) {
  const read = [world.nodes.size, world.claims.size, world.slices.size, world.pods.size].reduce((sum, size) => sum + size);
  return html`<div class="empty card">
    <h2>${status.phase === "loading" ? "Loading the cluster" : "The server does not respond"}</h2>
    <p>${status.phase === "loading" ? `${read.toLocaleString("en")} objects so far` : `${status.message ?? "Retrying."}`}</p>
  </div>`;
}

/** The last known state is shown while there is no connection. */
function Stale({ status }) {
  if (status.phase !== "reconnecting") return null;
  return html`<p class="denied">The server does not respond: ${status.message}. This is the last known state.</p>`;
}

/** Objects that are stored and not of the form of their kind. */
function Unreadable({ world }) {
  const faults = [...world.unreadable];
  if (!faults.length) return null;
  return html`<section class="denied" aria-label="Not readable">
    <p><strong>Not shown, because the page cannot read ${faults.length === 1 ? "it" : "them"}:</strong></p>
    <ul>${faults.slice(0, UNREADABLE_SHOWN).map(([name, message]) => html`<li key=${name}>${name}: ${message}</li>`)}</ul>
    ${faults.length > UNREADABLE_SHOWN && html`<p>and ${faults.length - UNREADABLE_SHOWN} more</p>`}
  </section>`;
}

const UNREADABLE_SHOWN = 5;

function Nowhere() {
  return html`<p class="empty">Page not found. <a href="#/">See all devices</a></p>`;
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
      return kind ? `Loading ${kind}` : "Loading";
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
