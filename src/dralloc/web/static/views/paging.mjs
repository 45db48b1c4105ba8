// Search fields and pages, independent of the size of the cluster.

import { html, useLayoutEffect, useRef } from "../vendor/htm-preact.mjs";
import { setParameters } from "./routes.mjs";

/** Returns the page in the address, or the nearest existing page. */
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

/** A selection that is part of the address. */
export function Choice({ name, value, options }) {
  return html`<select value=${value} onChange=${(event) => setParameters({ [name]: event.target.value, page: null })}>
    ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
  </select>`;
}

/** A search field; the key / focuses it. */
export function Search({ label, placeholder, value, found }) {
  const field = useRef(null);
  // In the layout effect, so that no key press is lost.
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

/** True if every word of the query occurs in the lower-case text. */
export function matchesQuery(text, query) {
  return query.every((word) => text.includes(word));
}

export function wordsOf(query = "") {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}
