// Keeps the model in sync with the cluster, by list and watch.
//
// A browser opens at most six connections to a server, shared by all tabs. So only kinds that change constantly, claims
// and pods, have their own watch; the other kinds take turns on a third connection, each resuming where it stopped.
// Watches are short, so that other windows get their turn, and a hidden window does not watch.

import { keyOf } from "../model/world.mjs";
import { Refused } from "./connection.mjs";

const RESOURCE = "/apis/resource.k8s.io/v1";

// In list order: claims come before slices, so that each device is computed once. `inNamespace` is the path of one namespace.
export const KINDS = [
  { name: "nodes", path: "/api/v1/nodes" },
  { name: "rules", path: `${RESOURCE}/devicetaintrules`, isOptional: true },
  { name: "classes", path: `${RESOURCE}/deviceclasses` },
  { name: "claims", path: `${RESOURCE}/resourceclaims`, inNamespace: (name) => `${RESOURCE}/namespaces/${name}/resourceclaims`, isBusy: true },
  { name: "slices", path: `${RESOURCE}/resourceslices` },
  { name: "pods", path: "/api/v1/pods", inNamespace: (name) => `/api/v1/namespaces/${name}/pods`, isBusy: true },
];
// Slices change more often than classes.
const TURNS = ["slices", "nodes", "slices", "rules", "slices", "classes"];
const LONG_S = 30;
const SHORT_S = 1;
const GRACE_S = 15;
const SOONEST_MS = 500;
// A kind that the user may not see is asked for again: roles change.
const DENIED_AGAIN_MS = 30_000;
// How often a kind is listed that the user may list but not watch.
const POLL_MS = 5_000;
const LIST_AGAIN = [410, 504];
const BACKOFF_FIRST_MS = 500;
const BACKOFF_MOST_MS = 10_000;
// The longest time to apply changes without yielding to the browser.
const STRETCH_MS = 12;

export class Live {
  /**
   * `tell` is called with the state of the connection, `changed` after each change of the model. With a `namespace`, only its claims and
   * pods are read.
   */
  constructor(world, connection, { tell, changed, namespace = "", pollMs = POLL_MS }) {
    this._world = world;
    this._connection = connection;
    this._tell = tell;
    this._changed = changed;
    this._namespace = namespace;
    this._pollMs = pollMs;
    this._revisions = new Map();
    // By the names of kinds that the user may not see: the server's message, and when to ask again.
    this._denied = new Map();
    this._cluster = null;
    this._stopping = null;
    this._isComplete = false;
  }

  /** Starts, or resumes after a pause. */
  start() {
    if (this._stopping) return;
    this._stopping = new AbortController();
    this._run(this._stopping.signal);
  }

  /** Stops for now; the model is kept. */
  pause() {
    this._stopping?.abort();
    this._stopping = null;
  }

  async _run(signal) {
    let failures = 0;
    while (!signal.aborted) {
      try {
        await this._catchUp(signal);
        failures = 0;
        this._tellLive();
        if (!signal.aborted) await this._follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this._tell({ phase: "refused", status: error.status, message: error.message, hadToken: Boolean(this._connection.token) });
          this.pause();
          return;
        }
        failures += 1;
        const waitMs = backoffMs(failures);
        this._tell({ phase: this._isComplete ? "reconnecting" : "connecting", retryAt: Date.now() + waitMs, message: error.message, denied: this._deniedKinds() });
        await pause(waitMs, signal);
      }
    }
  }

  /** Lists what is missing, and everything if the cluster changed. */
  async _catchUp(signal) {
    if (!this._isComplete) this._tell({ phase: "loading", kind: "" });
    const cluster = await this._clusterId(signal);
    if (cluster !== this._cluster) this._revisions.clear();
    this._cluster = cluster;
    for (const kind of KINDS) {
      if (this._revisions.has(kind.name)) continue;
      if (!this._isComplete) this._tell({ phase: "loading", kind: kind.name });
      await this._list(kind, signal);
    }
    if (this._denied.size === KINDS.length) throw new Refused(403, this._denied.values().next().value.message);
    this._isComplete = true;
  }

  /** Returns the UID of a namespace that every cluster has; empty if the user may not see it. */
  async _clusterId(signal) {
    try {
      return (await this._connection.get("/api/v1/namespaces/default", {}, signal)).metadata.uid;
    } catch (error) {
      if (!isDenied(error)) throw error;
      return "";
    }
  }

  _pathOf({ path, inNamespace }) {
    return this._namespace && inNamespace ? inNamespace(encodeURIComponent(this._namespace)) : path;
  }

  _tellLive() {
    this._tell({ phase: "live", denied: this._deniedKinds() });
  }

  _deniedKinds() {
    const denied = KINDS.filter(({ name }) => this._denied.has(name));
    return denied.map(({ name, inNamespace }) => ({ name, message: this._denied.get(name).message, isNamespaced: Boolean(inNamespace) }));
  }

  /** Forgets what was shown of a kind that the user may not see. */
  _deny(kind, error) {
    this._denied.set(kind.name, { message: error.message, againAt: performance.now() + DENIED_AGAIN_MS });
    this._revisions.set(kind.name, null);
    for (const key of [...this._world.keys(kind.name)]) this._world.remove(kind.name, key);
    this._world.settle();
    this._changed();
  }

  /** Waits for a short turn, and lists a kind that the user may not see if it is time to ask again. */
  async _askAgain(kind, signal) {
    await pause(SHORT_S * 1000, signal);
    if (signal.aborted || performance.now() < this._denied.get(kind.name).againAt) return;
    await this._list(kind, signal);
    this._tellLive();
  }

  async _list(kind, signal) {
    const stale = new Set(this._world.keys(kind.name));
    const pages = this._connection.list(this._pathOf(kind), signal);
    try {
      let page = await pages.next();
      for (; !page.done; page = await pages.next()) {
        for (const object of page.value) {
          stale.delete(keyOf(object));
          this._world.put(kind.name, object);
        }
        this._world.settle();
        this._changed();
        await breathe();
      }
      for (const key of stale) this._world.remove(kind.name, key);
      this._world.settle();
      this._changed();
      this._revisions.set(kind.name, page.value);
      this._denied.delete(kind.name);
    } catch (error) {
      if (isDenied(error)) {
        this._deny(kind, error);
        return;
      }
      if (!(kind.isOptional && error instanceof Refused && error.status === 404)) throw error;
      this._revisions.set(kind.name, null);
    }
  }

  // --- Watching -------------------------------------------------------------------------------------------------

  /** Watches everything until something fails. */
  async _follow(signal) {
    const together = new AbortController();
    const stop = () => together.abort();
    signal.addEventListener("abort", stop, { once: true });
    try {
      const busy = KINDS.filter(({ isBusy }) => isBusy).map((kind) => this._followOne(kind, together.signal));
      await Promise.all([...busy, this._takeTurns(together.signal)]);
    } finally {
      signal.removeEventListener("abort", stop);
      together.abort();
    }
  }

  async _followOne(kind, signal) {
    while (!signal.aborted) await (this._denied.has(kind.name) ? this._askAgain(kind, signal) : this._watch(kind, LONG_S, signal));
  }

  async _takeTurns(signal) {
    for (let turn = 0; !signal.aborted; turn = (turn + 1) % TURNS.length) {
      const kind = KINDS.find(({ name }) => name === TURNS[turn]);
      if (this._denied.has(kind.name)) await this._askAgain(kind, signal);
      else if (this._revisions.get(kind.name) !== null) await this._watch(kind, SHORT_S, signal);
    }
  }

  async _watch(kind, seconds, signal) {
    const begun = performance.now();
    // A server that disappeared does not end its watches.
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(new Error("the server does not respond")), (seconds + GRACE_S) * 1000);
    const stop = () => patience.abort(signal.reason);
    signal.addEventListener("abort", stop);
    try {
      const revision = this._revisions.get(kind.name);
      for await (const events of this._connection.watch(this._pathOf(kind), revision, seconds, patience.signal)) {
        await this._take(kind, events);
      }
      // A server that is shutting down closes watches at once; do not retry in a tight loop.
      if (performance.now() - begun < SOONEST_MS) await pause(SOONEST_MS, signal);
    } catch (error) {
      if (isDenied(error)) {
        // The user may have lost the permission for all of it, or have only the one to list.
        await pause(this._pollMs, signal);
        if (signal.aborted) return;
      } else if (!(error instanceof Refused && LIST_AGAIN.includes(error.status))) throw error;
      // The revision is compacted, or the server was restored from a backup and has not reached it; list again.
      this._revisions.delete(kind.name);
      await this._list(kind, signal);
      if (isDenied(error)) this._tellLive();
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  async _take(kind, events) {
    let begun = performance.now();
    for (const { type, object } of events) {
      if (type === "DELETED") this._world.remove(kind.name, keyOf(object));
      else if (type !== "BOOKMARK") this._world.put(kind.name, object);
      this._revisions.set(kind.name, object.metadata.resourceVersion);
      if (performance.now() - begun > STRETCH_MS) {
        await breathe();
        begun = performance.now();
      }
    }
    this._world.settle();
    if (events.some(({ type }) => type !== "BOOKMARK")) this._changed();
  }
}

function isDenied(error) {
  return error instanceof Refused && error.status === 403;
}

/** Exponential back-off with jitter, so that windows do not all reconnect at once. */
export function backoffMs(failures, random = Math.random) {
  const most = Math.min(BACKOFF_FIRST_MS * 2 ** Math.max(0, failures - 1), BACKOFF_MOST_MS);
  return Math.round(most * (0.5 + random() / 2));
}

/** Yields to the browser. */
function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
