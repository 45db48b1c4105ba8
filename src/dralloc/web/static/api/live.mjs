// Keeps a world in step with the cluster, by list and watch.
//
// A browser opens six connections to a server and no more, for all of its tabs together. So only what changes all the
// time, claims and pods, has a watch of its own; the other kinds take turns on a third connection, each watching for a
// moment from where it left off. Every watch ends soon, so that a second window gets its turn, and a window that nobody
// sees watches nothing.

import { keyOf } from "../model/world.mjs";
import { Refused } from "./connection.mjs";

const RESOURCE = "/apis/resource.k8s.io/v1";

// In the order in which they are listed: claims come before slices, so that each device is worked out once.
export const KINDS = [
  { name: "nodes", path: "/api/v1/nodes" },
  { name: "rules", path: `${RESOURCE}/devicetaintrules`, isOptional: true },
  { name: "classes", path: `${RESOURCE}/deviceclasses` },
  { name: "claims", path: `${RESOURCE}/resourceclaims`, isBusy: true },
  { name: "slices", path: `${RESOURCE}/resourceslices` },
  { name: "pods", path: "/api/v1/pods", isBusy: true },
];
// Devices come and go more often than classes do.
const TURNS = ["slices", "nodes", "slices", "rules", "slices", "classes"];
const LONG_S = 30;
const SHORT_S = 1;
const GRACE_S = 15;
const SOONEST_MS = 500;
const BACKOFF_FIRST_MS = 500;
const BACKOFF_MOST_MS = 10_000;
// The longest that changes are taken in without a pause for the browser.
const STRETCH_MS = 12;

export class Live {
  /** `tell` is called with the state of the connection, `changed` whenever the world has changed. */
  constructor(world, connection, { tell, changed }) {
    this._world = world;
    this._connection = connection;
    this._tell = tell;
    this._changed = changed;
    this._revisions = new Map();
    this._cluster = null;
    this._stopping = null;
    this._isComplete = false;
  }

  /** Begin, or go on after a pause. */
  start() {
    if (this._stopping) return;
    this._stopping = new AbortController();
    this._run(this._stopping.signal);
  }

  /** Stop for now; what is known stays. */
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
        this._tell({ phase: "live" });
        await this._follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this._tell({ phase: "refused", status: error.status, message: error.message, hadToken: Boolean(this._connection.token) });
          this.pause();
          return;
        }
        failures += 1;
        const waitMs = backoffMs(failures);
        this._tell({ phase: this._isComplete ? "reconnecting" : "connecting", retryAt: Date.now() + waitMs, message: error.message });
        await pause(waitMs, signal);
      }
    }
  }

  /** List what is not known, or not known to be the same cluster's. */
  async _catchUp(signal) {
    if (!this._isComplete) this._tell({ phase: "loading", kind: "" });
    const cluster = (await this._connection.get("/api/v1/namespaces/default", {}, signal)).metadata.uid;
    if (cluster !== this._cluster) this._revisions.clear();
    this._cluster = cluster;
    for (const kind of KINDS) {
      if (this._revisions.has(kind.name)) continue;
      if (!this._isComplete) this._tell({ phase: "loading", kind: kind.name });
      await this._list(kind, signal);
    }
    this._isComplete = true;
  }

  async _list(kind, signal) {
    const stale = new Set(this._world.keys(kind.name));
    const pages = this._connection.list(kind.path, signal);
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
    } catch (error) {
      if (!(kind.isOptional && error instanceof Refused && error.status === 404)) throw error;
      this._revisions.set(kind.name, null);
    }
  }

  // --- Following ------------------------------------------------------------------------------------------------

  /** Watch everything until something fails. */
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
    while (!signal.aborted) await this._watch(kind, LONG_S, signal);
  }

  async _takeTurns(signal) {
    for (let turn = 0; !signal.aborted; turn = (turn + 1) % TURNS.length) {
      const kind = KINDS.find(({ name }) => name === TURNS[turn]);
      if (this._revisions.get(kind.name) !== null) await this._watch(kind, SHORT_S, signal);
    }
  }

  async _watch(kind, seconds, signal) {
    const begun = performance.now();
    // A server that vanished without a word does not end its watches.
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(new Error("the server fell silent")), (seconds + GRACE_S) * 1000);
    const stop = () => patience.abort(signal.reason);
    signal.addEventListener("abort", stop);
    try {
      const revision = this._revisions.get(kind.name);
      for await (const events of this._connection.watch(kind.path, revision, seconds, patience.signal)) {
        await this._take(kind, events);
      }
      // One that is about to end closes them at once, and would be asked again and again.
      if (performance.now() - begun < SOONEST_MS) await pause(SOONEST_MS, signal);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 410)) throw error;
      // What happened since is forgotten; read everything again.
      this._revisions.delete(kind.name);
      await this._list(kind, signal);
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

/** Doubles with each failure, and differs from window to window, so that a server that comes back is not stormed. */
export function backoffMs(failures, random = Math.random) {
  const most = Math.min(BACKOFF_FIRST_MS * 2 ** Math.max(0, failures - 1), BACKOFF_MOST_MS);
  return Math.round(most * (0.5 + random() / 2));
}

/** Let the browser draw and listen. */
function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
