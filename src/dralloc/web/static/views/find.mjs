// Finding by name: nodes, devices, claims and pods, each with links to its node, its devices and its shares.

import { claimsOfPod, foundByName, waysOfClaim } from "../model/found.mjs";
import { html, useLayoutEffect, useMemo, useRef } from "../vendor/htm-preact.mjs";
import { ClaimLink } from "./bars.mjs";
import { Announced, wordsOf } from "./paging.mjs";
import { deviceHref, href, hrefOf, setParameters } from "./routes.mjs";
import { counted, shareText } from "./text.mjs";

const SHOWN_MAX = 12;
const WAYS_MAX = 4;
const NAMES = { nodes: "Nodes", devices: "Devices", claims: "Claims", pods: "Pods" };
const LISTS = { nodes: "#/", devices: "#/", claims: "#/claims", pods: "#/pods" };

/** The field in the header; the key / focuses it, Enter goes to the first match. */
export function FindField({ route }) {
  const field = useRef(null);
  const value = route.view === "find" ? (route.parameters.q ?? "") : "";
  // In the layout effect, so that no key press is lost.
  useLayoutEffect(() => {
    const focus = (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName ?? "");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current.focus();
      field.current.select();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const type = (event) => {
    const q = event.target.value;
    // One entry in the history for a search, not one for each key press.
    if (route.view === "find") setParameters({ q });
    else location.hash = `#/find?${new URLSearchParams({ q })}`;
  };
  const enter = (event) => {
    event.preventDefault();
    document.querySelector(".finds a")?.focus();
  };
  return html`<form class="search find" role="search" onSubmit=${enter}>
    <label class="hidden-text" for="find">Find a node, device, claim or pod by name</label>
    <input id="find" ref=${field} type="search" autocomplete="off" spellcheck=${false} placeholder="Find by name" value=${value} onInput=${type} />
    <kbd aria-hidden="true">/</kbd>
  </form>`;
}

export function FindView({ world, route, version }) {
  const { q = "" } = route.parameters;
  const kinds = useMemo(() => foundByName(world, wordsOf(q), SHOWN_MAX), [world, version, q]);
  const total = kinds.reduce((sum, { count }) => sum + count, 0);
  if (!wordsOf(q).length) return html`<p class="empty">Type a part of the name of a node, device, claim or pod, or the ID of a share.</p>`;
  return html`
    <${Announced} text=${counted(total, "match", "matches")} by=${q} />
    ${!total && html`<p class="empty">Nothing has a name with <strong>${q}</strong>.</p>`}
    ${kinds.map(
      ({ kind, count, shown }) => html`<section key=${kind} aria-labelledby=${`found-${kind}`}>
        <h2 id=${`found-${kind}`}>${NAMES[kind]} <span class="quiet">${count.toLocaleString("en")}</span></h2>
        <ul class="finds card">
          ${shown.map((each) => html`<li key=${each.text}><${Found} kind=${kind} found=${each} world=${world} /></li>`)}
        </ul>
        ${count > shown.length && html`<p class="quiet"><a href=${`${LISTS[kind]}?${new URLSearchParams({ q })}`}>and ${(count - shown.length).toLocaleString("en")} more</a></p>`}
      </section>`,
    )}
  `;
}

function Found({ kind, found, world }) {
  if (kind === "nodes") return html`<a class="find-name" href=${href("nodes", found.name)}>${found.name}</a>`;
  if (kind === "devices") return html`<${FoundDevice} ...${found} />`;
  if (kind === "claims") return html`<span class="find-name"><${ClaimLink} claim=${found.claim} /></span><${Ways} claims=${[found.claim]} world=${world} />`;
  return html`<a class="find-name" href=${hrefOf("pods", found.pod.key)}>${found.pod.key}</a>
    ${found.pod.node ? html`<${Ways} claims=${claimsOfPod(found.pod, world)} world=${world} node=${found.pod.node} />` : html` <span class="badge warn">pending</span>`}`;
}

function FoundDevice({ report, device }) {
  return html`<a class="find-name" href=${deviceHref(report, device.name)}>${device.name}</a> <span class="badge" data-state=${device.state}>${device.state}</span>
    <span class="way">${report.node ? html`on <a href=${href("nodes", report.node)}>${report.node}</a>` : html`in <a href=${href("pools", report.driver, report.pool)}>${report.pool}</a>`}, <span class="quiet">${report.driver}</span></span>`;
}

/** From claims to nodes, devices and shares. */
export function Ways({ claims, world, node = "" }) {
  const ways = claims.flatMap((claim) => waysOfClaim(claim, world));
  if (!ways.length) return node ? html` <span class="way">on <a href=${href("nodes", node)}>${node}</a></span>` : html` <span class="quiet">no devices</span>`;
  const shown = ways.slice(0, WAYS_MAX);
  return html`
    ${shown.map(
      ({ result, node: place }, index) => html`<span class="way" key=${index}>
        ${(place || node) && html`<a href=${href("nodes", place || node)}>${place || node}</a> <span aria-hidden="true">›</span> `}
        <a href=${deviceHref(result, result.device)}>${result.device}</a> <span aria-hidden="true">›</span> <a href=${deviceHref(result, result.device, result.shareID)}>${shareText(result)}</a>
      </span>`,
    )}
    ${ways.length > shown.length && html`<span class="quiet">and ${counted(ways.length - shown.length, "more device")}</span>`}
  `;
}
