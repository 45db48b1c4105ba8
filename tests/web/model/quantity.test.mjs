import assert from "node:assert/strict";
import test from "node:test";

import { parseQuantity, percent, printQuantity, quantityLike, ratio, roughly } from "../../../src/dralloc/web/static/model/quantity.mjs";

for (const [text, canonical] of [
  ["1Gi", "1Gi"], ["1024Mi", "1Gi"], ["0.5Gi", "512Mi"], ["1500m", "1500m"], ["1.5", "1500m"], ["100M", "100M"], ["1e3", "1e3"],
  ["1000", "1k"], ["0", "0"], ["-5k", "-5k"], ["0.0000000001", "1n"], ["12E", "12E"], [".5", "500m"], ["5.", "5"],
]) {
  test(`${text} is printed as ${canonical}`, () => assert.equal(printQuantity(parseQuantity(text)), canonical));
}

for (const text of ["", "abc", "1 Gi", "1e999999999", "--1", "1Zi", undefined, null]) {
  test(`${text} counts as nothing and throws nothing`, () => assert.equal(parseQuantity(text).nanos, 0n));
}

test("an amount takes the notation of its model", () => {
  assert.equal(printQuantity(quantityLike(parseQuantity("40Gi"), 25_769_803_776_000_000_000n)), "24Gi");
  assert.equal(printQuantity(quantityLike(parseQuantity("40G"), 2_000_000_000_000_000_000n)), "2G");
});

for (const [text, rough] of [["1920Gi", "1.8Ti"], ["80Gi", "80Gi"], ["67500M", "67.5G"], ["999", "999"], ["402Gi", "402Gi"], ["1500m", "1500m"]]) {
  test(`${text} is roughly ${rough}`, () => assert.equal(roughly(parseQuantity(text)), rough));
}

test("a part of nothing is nothing, and no part is more than the whole", () => {
  assert.equal(ratio(5n, 0n), 0);
  assert.equal(ratio(5n, 4n), 1);
  assert.equal(ratio(1n, 4n), 0.25);
});

test("all is said only of all, and nothing only of nothing", () => {
  assert.deepEqual([0, 0.0001, 0.5, 0.9999, 1].map(percent), [0, 1, 50, 99, 100]);
});
