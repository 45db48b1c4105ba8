import assert from "node:assert/strict";
import test from "node:test";

import { Connection, Refused } from "../../../src/dralloc/web/static/api/connection.mjs";
import { backoffMs, KINDS, Live } from "../../../src/dralloc/web/static/api/live.mjs";
import { World } from "../../../src/dralloc/web/static/model/world.mjs";

/** A server that answers from a script: lists are empty unless told, watches stay open until they are aborted. */
function server(answers) {
  const asked = [];
  const fetcher = async (url, { signal }) => {
    const { pathname, searchParams } = new URL(url, "http://server");
    const kind = KINDS.find(({ path }) => path === pathname)?.name ?? "cluster";
    const isWatch = searchParams.has("watch");
    asked.push({ kind, isWatch, revision: searchParams.get("resourceVersion"), page: searchParams.get("continue") });
    const answer = answers({ kind, isWatch, page: searchParams.get("continue"), revision: searchParams.get("resourceVersion") });
    if (answer instanceof Response) return answer;
    if (answer !== undefined) return isWatch ? stream(answer, signal) : Response.json(answer);
    if (kind === "cluster") return Response.json({ metadata: { uid: "cluster" } });
    return isWatch ? stream([], signal) : Response.json({ metadata: { resourceVersion: "7" }, items: [] });
  };
  return { asked, connection: new Connection("", fetcher) };
}

function stream(lines, signal) {
  const body = new ReadableStream({
    start(controller) {
      signal.addEventListener("abort", () => controller.error(signal.reason));
      for (const line of lines) controller.enqueue(new TextEncoder().encode(line));
    },
  });
  return new Response(body);
}

/** Run until the condition holds. */
async function until(connection, condition, options = {}) {
  const world = new World();
  const told = [];
  await new Promise((resolve, reject) => {
    const look = () => condition(world, told) && resolve();
    const live = new Live(world, connection, { tell: (status) => (told.push(status), look()), changed: look, ...options });
    const timer = setTimeout(() => reject(new Error(`not in time: ${JSON.stringify(told)}`)), 20_000);
    live.start();
    const stop = resolve;
    resolve = () => (clearTimeout(timer), live.pause(), stop());
  });
  return { world, told };
}

const pod = (name, resourceVersion) => ({ metadata: { name, namespace: "ns", resourceVersion } });
const event = (type, object) => `${JSON.stringify({ type, object })}\n`;

test("pages of a list are read to the end, and the watch goes on from there", async () => {
  const { connection, asked } = server(({ kind, isWatch, page }) => {
    if (kind !== "pods") return undefined;
    if (isWatch) return [event("ADDED", pod("c", "10"))];
    return page
      ? { metadata: { resourceVersion: "9" }, items: [pod("b", "2")] }
      : { metadata: { resourceVersion: "9", continue: "more" }, items: [pod("a", "1")] };
  });
  const { world } = await until(connection, (each) => each.pods.size === 3);
  assert.deepEqual([...world.pods.keys()], ["ns/a", "ns/b", "ns/c"]);
  assert.equal(asked.find(({ kind, isWatch }) => kind === "pods" && isWatch).revision, "9");
});

test("events that arrive in pieces are put together", async () => {
  const [whole, other] = [event("ADDED", pod("a", "8")), event("ADDED", pod("b", "9"))];
  const { connection } = server(({ kind, isWatch }) => (kind === "pods" && isWatch ? [whole.slice(0, 20), whole.slice(20) + other] : undefined));
  const { world } = await until(connection, (each) => each.pods.size === 2);
  assert.deepEqual([...world.pods.keys()], ["ns/a", "ns/b"]);
});

for (const code of [410, 504]) test(`a revision that the server does not have (${code}) makes everything of the kind be read again`, async () => {
  let lists = 0;
  const gone = event("ERROR", { code, message: "too old or too large" });
  const { connection } = server(({ kind, isWatch, revision }) => {
    if (kind !== "pods") return undefined;
    if (isWatch) return revision === "7" ? [gone] : undefined;
    lists += 1;
    return { metadata: { resourceVersion: lists === 1 ? "7" : "20" }, items: lists === 1 ? [pod("old", "1")] : [pod("new", "2")] };
  });
  const { world, told } = await until(connection, (each) => each.pods.has("ns/new") && !each.pods.has("ns/old"));
  assert.deepEqual([...world.pods.keys()], ["ns/new"]);
  assert.deepEqual(told.filter(({ phase }) => phase === "reconnecting"), []);
});

test("a failure is told and tried again, from where it stopped", async () => {
  let failures = 0;
  const { connection, asked } = server(({ kind, isWatch }) => {
    if (kind === "claims" && isWatch && failures++ === 0) throw new TypeError("network error");
    return undefined;
  });
  const { told } = await until(connection, (_, states) => states.filter(({ phase }) => phase === "live").length === 2);
  assert.deepEqual(told.map(({ phase }) => phase).filter((phase) => phase !== "loading"), ["live", "reconnecting", "live"]);
  assert.equal(asked.filter(({ kind, isWatch }) => kind === "pods" && !isWatch).length, 1, "what is known is not read again");
});

test("another cluster at the same address is read anew", async () => {
  let clusters = 0;
  let failures = 0;
  const { connection, asked } = server(({ kind, isWatch }) => {
    if (kind === "cluster") return { metadata: { uid: `cluster-${(clusters += 1)}` } };
    if (kind === "claims" && isWatch && failures++ === 0) throw new TypeError("network error");
    return undefined;
  });
  await until(connection, (_, states) => states.filter(({ phase }) => phase === "live").length === 2);
  assert.equal(asked.filter(({ kind, isWatch }) => kind === "pods" && !isWatch).length, 2);
});

const refused = (status, message = "no") => Response.json({ message }, { status });

test("a missing credential is told, and not tried again", async () => {
  const { connection, asked } = server(() => refused(401));
  const { told } = await until(connection, (_, states) => states.some(({ phase }) => phase === "refused"));
  assert.deepEqual(told.at(-1), { phase: "refused", status: 401, message: "no", hadToken: false });
  assert.equal(asked.length, 1);
});

test("a user who may not see anything is told so, and asked for another credential", async () => {
  const { connection, asked } = server(() => refused(403));
  const { told } = await until(connection, (_, states) => states.some(({ phase }) => phase === "refused"));
  assert.deepEqual(told.at(-1), { phase: "refused", status: 403, message: "no", hadToken: false });
  assert.equal(asked.length, 1 + KINDS.length);
});

test("kinds that the user may not see are told, the others are shown", async () => {
  const { connection, asked } = server(({ kind, isWatch }) => {
    if (kind === "cluster") return refused(403);
    if (kind === "nodes" || kind === "claims") return refused(403, `cannot list ${kind}`);
    return kind === "pods" && !isWatch ? { metadata: { resourceVersion: "9" }, items: [pod("a", "1")] } : undefined;
  });
  const { world, told } = await until(connection, (_, states) => states.some(({ phase }) => phase === "live"));
  assert.deepEqual([...world.pods.keys()], ["ns/a"]);
  assert.deepEqual(told.at(-1).denied, [
    { name: "nodes", message: "cannot list nodes", isNamespaced: false },
    { name: "claims", message: "cannot list claims", isNamespaced: true },
  ]);
  assert.deepEqual(asked.filter(({ kind, isWatch }) => isWatch && (kind === "nodes" || kind === "claims")), []);
});

test("a kind that the user may see no more is removed", async () => {
  let mayList = true;
  const { connection } = server(({ kind, isWatch }) => {
    if (kind !== "pods") return undefined;
    if (isWatch) return (mayList = false), refused(403);
    return mayList ? { metadata: { resourceVersion: "9" }, items: [pod("a", "1")] } : refused(403, "cannot list pods");
  });
  const { world, told } = await until(connection, (_, states) => states.some(({ denied }) => denied?.length), { pollMs: 10 });
  assert.deepEqual(told.at(-1).denied.map(({ name }) => name), ["pods"]);
  assert.equal(world.pods.size, 0);
});

test("only one namespace is read, if one is chosen", async () => {
  const paths = [];
  const connection = new Connection("", async (url) => {
    paths.push(new URL(url, "http://server").pathname);
    return Response.json({ metadata: { resourceVersion: "7", uid: "u" }, items: [] });
  });
  await until(connection, (_, states) => states.some(({ phase }) => phase === "live"), { namespace: "team a" });
  assert.ok(paths.includes("/api/v1/namespaces/team%20a/pods"));
  assert.ok(paths.includes("/apis/resource.k8s.io/v1/namespaces/team%20a/resourceclaims"));
  assert.ok(paths.includes("/api/v1/nodes"));
  assert.ok(!paths.includes("/api/v1/pods"));
});

test("a kind that an older server lacks is done without", async () => {
  const { connection } = server(({ kind }) => (kind === "rules" ? new Response("404 page not found", { status: 404 }) : undefined));
  const { told } = await until(connection, (_, states) => states.some(({ phase }) => phase === "live"));
  assert.ok(told.every(({ phase }) => phase !== "connecting"));
});

test("a refusal says what the server said", async () => {
  const connection = new Connection("token", async () => Response.json({ kind: "Status", message: "not you" }, { status: 403 }));
  await assert.rejects(connection.get("/api/v1/pods", {}), (error) => error instanceof Refused && error.message === "not you");
});

test("waits grow to ten seconds and differ", () => {
  assert.deepEqual([1, 2, 3, 10].map((failures) => backoffMs(failures, () => 1)), [500, 1000, 2000, 10_000]);
  assert.equal(backoffMs(10, () => 0), 5000);
});
