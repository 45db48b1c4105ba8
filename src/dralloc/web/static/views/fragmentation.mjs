// Idle devices over time, and what no typical pod can use of them, by driver and cause. Nothing where no scheduler keeps samples.

import { CAUSES, seriesOf, shapesOf } from "../model/fragmentation.mjs";
import { html, useEffect, useState } from "../vendor/htm-preact.mjs";

const PATH = "/dralloc/v1/fragmentation";
const ASKED_EVERY_MS = 30_000;
const [WIDTH, HEIGHT] = [300, 60];

export function Fragmentation({ connection, driver }) {
  const [samples, setSamples] = useState([]);
  useEffect(() => {
    const leaving = new AbortController();
    // The rest of the page says what is wrong if there is no answer.
    const ask = () => connection.get(PATH, {}, leaving.signal).then((answer) => setSamples(answer.samples), () => {});
    ask();
    const timer = setInterval(ask, ASKED_EVERY_MS);
    return () => {
      clearInterval(timer);
      leaving.abort();
    };
  }, [connection]);
  const shown = seriesOf(samples).filter((series) => !driver || series.driver === driver);
  if (!shown.length) return null;
  return html`<section aria-labelledby="fragmentation">
    <div class="section-head">
      <h2 id="fragmentation">Idle devices</h2>
      <p class="quiet">${periodOf(samples)}; filled: what no typical pod can use</p>
    </div>
    <ul class="tiles">
      ${shown.map((series) => html`<${Chart} key=${series.driver} series=${series} />`)}
    </ul>
  </section>`;
}

function periodOf(samples) {
  const minutes = Math.round((Date.parse(samples.at(-1).time) - Date.parse(samples[0].time)) / 60_000);
  return minutes < 1 ? "now" : minutes < 120 ? `the last ${minutes} min` : `the last ${Math.round(minutes / 60)} h`;
}

function Chart({ series }) {
  const { areas, line } = shapesOf(series, WIDTH, HEIGHT);
  const { idle, stranded } = series.points.at(-1);
  const causes = CAUSES.filter(([cause]) => stranded[cause] > 0);
  return html`<li class="card tile fragmentation" data-driver=${series.driver}>
    <h3>${series.driver}</h3>
    <svg viewBox=${`0 -2 ${WIDTH} ${HEIGHT + 4}`} preserveAspectRatio="none" aria-hidden="true">
      ${areas.map(({ cause, outline }) => html`<polygon key=${cause} data-cause=${cause} points=${outline} />`)}
      <polyline points=${line} />
    </svg>
    <ul class="legend">
      <li>${amountText(idle)} idle</li>
      ${causes.map(([cause, words]) => html`<li key=${cause}><span class="dot" data-cause=${cause}></span>${amountText(stranded[cause])} ${words}</li>`)}
    </ul>
  </li>`;
}

function amountText(amount) {
  return amount.toLocaleString("en", { maximumFractionDigits: 2 });
}
