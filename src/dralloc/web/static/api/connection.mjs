// Requests to the server that served the page: lists in pages, and watches.

/** A failed request: its status and the server's message. */
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

  /** Returns the document at the path. */
  async get(path, parameters, signal) {
    return (await this._ask(path, parameters, signal)).json();
  }

  /** Yields the objects of a collection in pages; returns the revision for a watch to start from. */
  async *list(path, signal) {
    let next = "";
    for (;;) {
      const page = await this.get(path, { limit: PAGE_SIZE, ...(next && { continue: next }) }, signal);
      yield page.items ?? [];
      next = page.metadata.continue ?? "";
      if (!next) return page.metadata.resourceVersion;
    }
  }

  /** Yields changes after the revision, in batches as they arrive, until the timeout. */
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
    // No header can have it, and what `fetch` throws then looks like a server that does not respond.
    if (/[^\x21-\x7e]/.test(this.token)) throw new Refused(401, "a token consists of ASCII characters without spaces");
    const query = new URLSearchParams(parameters);
    const headers = { accept: "application/json", ...(this.token && { authorization: `Bearer ${this.token}` }) };
    const response = await this._fetch(`${path}?${query}`, { headers, signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw new Refused(response.status, await saidBy(response));
    return response;
  }
}

// Small enough that parsing a page of slices does not block the browser.
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
