// A few of many: search fields, and pages. Nothing here grows with the cluster but a number.

import { html, useLayoutEffect, useRef } from "../vendor/htm-preact.mjs";
import { setParameters } from "./routes.mjs";

/** The page of the items that the address names; pages that do not exist are the nearest that do. */
export function pageOf(items, parameters, size) {
  const pages = Math.max(1, Math.ceil(items.length / size));
  const page = Math.min(pages, Math.max(1, Number.parseInt(parameters.page ?? "1", 10) || 1));
  return { page, pages, shown: items.slice((page - 1) * size, page * size) };
}

export function Pages({ page, pages, label }) {
  if (pages === 1) return null;
  const to = (number) => () => setParameters({ page: number === 1 ? null : number });
  return html`<nav class="pages" aria-label=${label}>
    <button type="button" onClick=${to(page - 1)} disabled=${page === 1}>← Previous</button>
    <span role="status">Page ${page} of ${pages.toLocaleString("en")}</span>
    <button type="button" onClick=${to(page + 1)} disabled=${page === pages}>Next →</button>
  </nav>`;
}

/** One of a few, as part of the address. */
export function Choice({ name, value, options }) {
  return html`<select value=${value} onChange=${(event) => setParameters({ [name]: event.target.value, page: null })}>
    ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
  </select>`;
}

/** Press / to get there. */
export function Search({ label, placeholder, value, found }) {
  const field = useRef(null);
  // At once when it is drawn, so that no key is lost.
  useLayoutEffect(() => {
    const focus = (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName ?? "");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  return html`<div class="search" role="search">
    <label class="hidden-text" for="search">${label}</label>
    <input
      id="search" ref=${field} type="search" autocomplete="off" spellcheck=${false} placeholder=${placeholder} value=${value}
      onInput=${(event) => setParameters({ q: event.target.value, page: null })}
    />
    <kbd aria-hidden="true">/</kbd>
    <span class="found" role="status">${found}</span>
  </div>`;
}

/** Whether every word of the query occurs in the text, which is lower case. */
export function matchesQuery(text, query) {
  return query.every((word) => text.includes(word));
}

export function wordsOf(query = "") {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}
