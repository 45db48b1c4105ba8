import assert from "node:assert/strict";
import { test } from "node:test";

import { seriesOf, shapesOf } from "../../../src/dralloc/web/static/model/fragmentation.mjs";

const SAMPLES = [
  { time: "2026-01-01T00:00:00Z", drivers: { gpu: { idle: 4, stranded: { taint: 1 } } } },
  { time: "2026-01-01T00:01:00Z", drivers: { gpu: { idle: 2, stranded: { taint: 1, "cpu-starved": 1 } }, nic: { idle: 1, stranded: {} } } },
];

test("each driver has its series, and the highest value is the top of its chart", () => {
  const [gpu, nic] = seriesOf(SAMPLES);
  assert.deepEqual([gpu.driver, gpu.most, nic.driver, nic.most], ["gpu", 4, "nic", 1]);
  assert.deepEqual(nic.points.map(({ idle }) => idle), [0, 1]);
  assert.equal(shapesOf(gpu, 100, 40).line, "0.0,0.0 100.0,20.0");
});

test("causes are stacked", () => {
  const { areas } = shapesOf(seriesOf(SAMPLES)[0], 100, 40);
  assert.deepEqual(areas, [
    { cause: "cpu-starved", outline: "0.0,40.0 100.0,30.0 100.0,40.0 0.0,40.0" },
    { cause: "taint", outline: "0.0,30.0 100.0,20.0 100.0,30.0 0.0,40.0" },
  ]);
});

test("one sample is a level line, and no sample is no series", () => {
  assert.deepEqual(seriesOf([]), []);
  assert.equal(shapesOf(seriesOf(SAMPLES.slice(0, 1))[0], 100, 40).line, "0.0,0.0 100.0,0.0");
});
