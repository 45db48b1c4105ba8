import assert from "node:assert/strict";
import test from "node:test";

import { splitToken } from "../../../src/dralloc/web/static/views/token.mjs";

for (const [hash, token, rest] of [
  ["", "", ""],
  ["#/", "", "#/"],
  ["#/pods?q=token", "", "#/pods?q=token"],
  ["#/find?q=token%3Da", "", "#/find?q=token%3Da"],
  ["#token=", "", "#/"],
  ["#token=a.b-c_d", "a.b-c_d", "#/"],
  ["#token=a+b/c==", "a+b/c==", "#/"],
  ["#token=a%26b", "a&b", "#/"],
  ["#token=a%", "a%", "#/"],
  ["#token=a#/pods?q=x", "a", "#/pods?q=x"],
  ["#/pods?token=a", "a", "#/pods"],
  ["#/pods?q=x&token=a+b==&page=2", "a+b==", "#/pods?q=x&page=2"],
  ["#/pods?token=", "", "#/pods"],
  ["#/pods?token=a&token=b", "a", "#/pods"],
]) {
  test(`the token of ${hash}`, () => assert.deepEqual(splitToken(hash), { token, rest }));
}
