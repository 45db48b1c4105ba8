// Requests to the server that the page came from: pages of lists, and the lines of watches.

/** An answer that is no answer: its status, and what the server says about it. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Connection {
  constructor(token = "", fetcher = (...call) => globalThis.fetch(...call)) {
    this.token = token;
    this._fetch = fetcher;
  }

  /** The document at the path. */
  async get(path, parameters, signal) {
    return (await this._ask(path, parameters, signal)).json();
  }

  /** The objects of a collection, page after page; returns the revision that a watch goes on from. */
  async *list(path, signal) {
    let next = "";
    for (;;) {
      const page = await this.get(path, { limit: PAGE_SIZE, ...(next && { continue: next }) }, signal);
      yield page.items ?? [];
      next = page.metadata.continue ?? "";
      if (!next) return page.metadata.resourceVersion;
    }
  }

  /** Changes after the revision, in batches as they arrive, until the time is up. */
  async *watch(path, resourceVersion, timeoutSeconds, signal) {
    const parameters = { watch: "true", allowWatchBookmarks: "true", resourceVersion, timeoutSeconds };
    const response = await this._ask(path, parameters, signal);
    let rest = "";
    for await (const text of piecesOf(response.body, signal)) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      const events = lines.filter(Boolean).map((line) => JSON.parse(line));
      const error = events.find(({ type }) => type === "ERROR");
      if (error) throw new Refused(error.object?.code ?? 500, error.object?.message ?? "the watch failed");
      if (events.length) yield events;
    }
  }

  async _ask(path, parameters, signal) {
    const query = new URLSearchParams(parameters);
    const headers = { accept: "application/json", ...(this.token && { authorization: `Bearer ${this.token}` }) };
    const response = await this._fetch(`${path}?${query}`, { headers, signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw new Refused(response.status, await saidBy(response));
    return response;
  }
}

// Small enough that reading a page of slices does not hold up the browser.
const PAGE_SIZE = 250;

async function* piecesOf(body, signal) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal?.aborted) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function saidBy(response) {
  try {
    const text = await response.text();
    return JSON.parse(text).message ?? text;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}
