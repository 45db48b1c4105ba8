import assert from "node:assert/strict";
import test from "node:test";

import { Connection } from "../../../src/dralloc/web/static/api/connection.mjs";
import { Explainer } from "../../../src/dralloc/web/static/api/explainer.mjs";

const REST_MS = 40;

/** An explainer whose server gives these answers, one after the other, the last one forever. */
function explainer(...answers) {
  const asked = [];
  const told = [];
  const fetcher = async (url) => {
    asked.push(new URL(url, "http://server").pathname);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (answer instanceof Error) throw answer;
    return answer.status ? Response.json({ message: answer.message }, { status: answer.status }) : Response.json(answer);
  };
  const made = new Explainer(new Connection("", fetcher), "explain/pods", "ns/a b", (found) => told.push(found), { restMs: REST_MS });
  return { made, asked, told };
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function until(condition) {
  for (let tries = 0; !condition(); tries += 1) {
    assert.ok(tries < 500, "did not come about");
    await pause(10);
  }
}

test("the first question is asked at once, further ones after a rest, changes meanwhile together", async () => {
  const { made, asked, told } = explainer({ text: "fits" });
  made.changed();
  await until(() => told.length === 1);
  assert.deepEqual(told[0], { answer: { text: "fits" } });
  assert.deepEqual(asked, ["/dralloc/v1/explain/pods/ns/a%20b"]);
  const begun = performance.now();
  for (let times = 0; times < 10; times += 1) made.changed();
  await until(() => told.length === 2);
  assert.ok(performance.now() - begun >= REST_MS - 5);
  await pause(3 * REST_MS);
  assert.equal(asked.length, 2);
  made.stop();
});

test("a refusal is told, a busy server and a lost connection are asked again", async () => {
  const { made, asked, told } = explainer(new TypeError("lost"), { status: 429, message: "busy" }, { status: 403, message: "may not" });
  made.changed();
  await until(() => told.length === 1);
  assert.deepEqual(told, [{ message: "may not" }]);
  assert.equal(asked.length, 3);
  made.stop();
});

test("nothing is asked or told after the end", async () => {
  const { made, asked, told } = explainer({ text: "fits" });
  made.changed();
  made.stop();
  made.changed();
  await pause(2 * REST_MS);
  assert.deepEqual([asked, told], [[], []]);
});
