// A map of thousands of nodes: one cell each, darker the more is allocated. A click opens the node.
//
// Drawn on a canvas, because that many elements would slow the browser down. The list of nodes has the same contents
// for keyboards and screen readers.

import { isFull, loadOfPlace } from "../model/places.mjs";
import { percent } from "../model/quantity.mjs";
import { html, useEffect, useRef, useState } from "../vendor/htm-preact.mjs";
import { href } from "./routes.mjs";
import { counted } from "./text.mjs";
import { useTheme } from "./theme_switch.mjs";

const STEPS = 5;

export function PlaceMap({ places, version }) {
  const canvas = useRef(null);
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, []);
  const cell = places.length > 2000 ? 10 : places.length > 400 ? 14 : 20;
  const columns = Math.max(1, Math.floor(width / cell));
  const rows = Math.ceil(places.length / columns);
  const theme = useTheme();
  useEffect(() => draw(canvas.current, places, { cell, columns, rows }), [version, places, width, cell, theme]);
  const placeAt = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / cell);
    const row = Math.floor((event.clientY - box.top) / cell);
    return column < columns ? places[row * columns + column] : undefined;
  };
  const open = (event) => {
    const place = placeAt(event);
    if (place) location.hash = href(...place.path);
  };
  const said = pointed ? `${pointed.title}: ${percent(loadOfPlace(pointed))}% allocated${isFull(pointed) ? ", full" : ""}` : "";
  return html`<figure class="map card">
    <div class="map-canvas">
      <canvas ref=${canvas} role="img" aria-label=${`Map of ${counted(places.length, "node")} by allocated devices`}
        onMouseMove=${(event) => setPointed(placeAt(event) ?? null)} onMouseLeave=${() => setPointed(null)} onClick=${open}></canvas>
    </div>
    <figcaption>
      <span class="map-key" aria-hidden="true">nothing allocated ${Array.from({ length: STEPS + 1 }, (_, step) => html`<span class="map-step" key=${step} data-step=${step}></span>`)} full</span>
      <span class="map-said">${said}</span>
    </figcaption>
  </figure>`;
}

/** 0 for nothing allocated, the last step only where all devices are full. */
function stepOf(place) {
  if (isFull(place)) return STEPS;
  const load = loadOfPlace(place);
  return load === 0 ? 0 : Math.min(STEPS - 1, 1 + Math.floor(load * (STEPS - 1)));
}

function draw(canvas, places, { cell, columns, rows }) {
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
  places.forEach((place, index) => {
    pen.fillStyle = colours[stepOf(place)];
    pen.beginPath();
    pen.roundRect((index % columns) * cell, Math.floor(index / columns) * cell, cell - gap, cell - gap, 2);
    pen.fill();
  });
}
