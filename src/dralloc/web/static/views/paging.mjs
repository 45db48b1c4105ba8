// Search fields and pages, independent of the size of the cluster.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { setParameters } from "./routes.mjs";

// Long enough that a word is typed to its end.
const ANNOUNCED_AFTER_MS = 400;

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

/** A filter of a list. */
export function Filter({ label, placeholder, value, found }) {
  return html`<div class="search" role="search" aria-label=${label}>
    <label class="hidden-text" for="filter">${label}</label>
    <input
      id="filter" type="search" autocomplete="off" spellcheck=${false} placeholder=${placeholder} value=${value}
      onInput=${(event) => setParameters({ q: event.target.value, page: null })}
    />
    <span class="found">${found}</span>
    <${Announced} text=${found} by=${value} />
  </div>`;
}

/** Tells screen readers the text when `by` changes, and not with every change of the cluster. */
export function Announced({ text, by }) {
  const [said, say] = useState("");
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => {
    if (!by) return undefined;
    const timer = setTimeout(() => say(latest.current), ANNOUNCED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [by]);
  return html`<span class="hidden-text" role="status">${said}</span>`;
}

/** True if every word of the query occurs in the lower-case text. */
export function matchesQuery(text, query) {
  return query.every((word) => text.includes(word));
}

export function wordsOf(query = "") {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}
