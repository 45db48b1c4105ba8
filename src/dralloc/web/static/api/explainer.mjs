// Asks the server a question about one object, such as what `dralloc explain` answers, again and again while the cluster changes.

import { Refused } from "./connection.mjs";

// An answer takes the server seconds where there are thousands of nodes; the longer it takes, the rarer it is asked for.
const REST_MS = 2_000;
const REST_PER_ANSWER = 10;
// The server is busy: too many questions, not available, not ready in time.
const BUSY = [429, 503, 504];

export class Explainer {
  /** `question` is such as explain/pods. `tell` is called with `{ answer }` or `{ message }`: why there is no answer. */
  constructor(connection, question, key, tell, { restMs = REST_MS } = {}) {
    this._connection = connection;
    this._path = `/dralloc/v1/${question}/${key.split("/").map(encodeURIComponent).join("/")}`;
    this._tell = tell;
    this._restMs = restMs;
    this._nextAt = 0;
    this._timer = null;
    this._isAsking = false;
    this._isDue = false;
    this._leaving = new AbortController();
  }

  /** Asks as soon as it is time: at once at first, later not before a rest. */
  changed() {
    this._isDue = true;
    this._plan();
  }

  stop() {
    this._leaving.abort();
    clearTimeout(this._timer);
  }

  _plan() {
    if (!this._isDue || this._timer !== null || this._isAsking || this._leaving.signal.aborted) return;
    this._timer = setTimeout(() => this._ask(), Math.max(0, this._nextAt - performance.now()));
  }

  async _ask() {
    const begun = performance.now();
    [this._timer, this._isDue, this._isAsking] = [null, false, true];
    const found = await this._answer();
    if (this._leaving.signal.aborted) return;
    if (found) this._tell(found);
    else this._isDue = true;
    this._isAsking = false;
    const ended = performance.now();
    this._nextAt = ended + Math.max(this._restMs, REST_PER_ANSWER * (ended - begun));
    this._plan();
  }

  /** Returns null if the question is to be repeated. */
  async _answer() {
    try {
      return { answer: await this._connection.get(this._path, {}, this._leaving.signal) };
    } catch (error) {
      // A lost connection is shown elsewhere.
      return error instanceof Refused && !BUSY.includes(error.status) ? { message: error.message } : null;
    }
  }
}
