// Tables. On a narrow screen every row becomes a block of lines with the names of their columns; the roles keep it a table for screen readers.

import { html } from "../vendor/htm-preact.mjs";

/** `columns` are names, or `[name, class]`. */
export function Table({ columns, class: kind = "", children }) {
  return html`<table role="table" class=${kind}>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map((column) => {
          const [name, style] = [column].flat();
          return html`<th key=${name} role="columnheader" scope="col" class=${style}>${name}</th>`;
        })}
      </tr>
    </thead>
    <tbody role="rowgroup">${children}</tbody>
  </table>`;
}

export function Row({ children }) {
  return html`<tr role="row">${children}</tr>`;
}

/** The cell that names its row. */
export function Name({ children }) {
  return html`<th role="rowheader" scope="row">${children}</th>`;
}

/** `of` is the name of its column. */
export function Cell({ of, class: kind = "", children }) {
  return html`<td role="cell" class=${kind} data-column=${of}>${children}</td>`;
}
