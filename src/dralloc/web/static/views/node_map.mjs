// Thousands of nodes in one picture: a cell each, the darker the more of it is given out. A click leads to the node.
//
// Drawn on a canvas, because as many elements would slow the browser down. Everything in it is in the list of nodes, too,
// which is what keyboards and screen readers get.

import { loadOf } from "../model/grouping.mjs";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { href } from "./routes.mjs";
import { counted } from "./text.mjs";
import { useTheme } from "./theme_switch.mjs";

const STEPS = 5;
const loads = new WeakMap();

function knownLoad(world, name) {
  const reports = world.reportsOfNode(name);
  if (!reports.length) return 0;
  let known = loads.get(reports[0].devices);
  if (known === undefined) loads.set(reports[0].devices, (known = loadOf(reports)));
  return known;
}

export function NodeMap({ world, names, version }) {
  const canvas = useRef(null);
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, []);
  const cell = names.length > 2000 ? 10 : names.length > 400 ? 14 : 20;
  const columns = Math.max(1, Math.floor(width / cell));
  const rows = Math.ceil(names.length / columns);
  const theme = useTheme();
  useEffect(() => draw(canvas.current, world, names, { cell, columns, rows }), [world, version, names, width, cell, theme]);
  const nameAt = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / cell);
    const row = Math.floor((event.clientY - box.top) / cell);
    return column < columns ? names[row * columns + column] : undefined;
  };
  const open = (event) => {
    const name = nameAt(event);
    if (name) location.hash = href("nodes", name);
  };
  const said = pointed ? `${pointed}: ${Math.round(knownLoad(world, pointed) * 100)}% given out` : "";
  return html`<figure class="map card">
    <div class="map-canvas">
      <canvas ref=${canvas} role="img" aria-label=${`Map of ${counted(names.length, "node")} by how much of their devices is given out`}
        onMouseMove=${(event) => setPointed(nameAt(event) ?? null)} onMouseLeave=${() => setPointed(null)} onClick=${open}></canvas>
    </div>
    <figcaption>
      <span class="map-key" aria-hidden="true">free ${Array.from({ length: STEPS + 1 }, (_, step) => html`<span class="map-step" key=${step} data-step=${step}></span>`)} full</span>
      <span class="map-said">${said}</span>
    </figcaption>
  </figure>`;
}

function draw(canvas, world, names, { cell, columns, rows }) {
  const scale = devicePixelRatio || 1;
  canvas.width = columns * cell * scale;
  canvas.height = rows * cell * scale;
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${rows * cell}px`;
  const steps = canvas.closest("figure").querySelectorAll(".map-step");
  const colours = [...steps].map((step) => getComputedStyle(step).backgroundColor);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const gap = cell > 10 ? 3 : 2;
  names.forEach((name, index) => {
    const load = knownLoad(world, name);
    pen.fillStyle = colours[load === 0 ? 0 : Math.min(STEPS, 1 + Math.floor(load * STEPS))];
    pen.beginPath();
    pen.roundRect((index % columns) * cell, Math.floor(index / columns) * cell, cell - gap, cell - gap, 2);
    pen.fill();
  });
}
