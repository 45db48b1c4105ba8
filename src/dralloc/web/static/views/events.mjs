// The events of one object, read when the object is opened and after each change.

import { Refused } from "../api/connection.mjs";
import { html, useEffect, useState } from "../vendor/htm-preact.mjs";
import { age } from "./text.mjs";

const EVENTS_SHOWN = 12;

export function Events({ connection, kind, namespace, name, changed }) {
  const [events, setEvents] = useState([]);
  useEffect(() => {
    const leaving = new AbortController();
    readEvents(connection, { kind, namespace, name }, leaving.signal).then(setEvents, (error) => {
      // Events are optional: connection errors are shown elsewhere.
      if (!(error instanceof Refused || error instanceof TypeError || leaving.signal.aborted)) throw error;
    });
    return () => leaving.abort();
  }, [connection, kind, namespace, name, changed]);
  if (!events.length) return null;
  return html`<section class="card" aria-labelledby="events">
    <h2 id="events">Events</h2>
    <ul class="events">
      ${events.map(
        (event) => html`<li key=${event.metadata.name} class="event">
          <span class="quiet">${age(timeOf(event))} ago</span>
          <span class=${event.type === "Warning" ? "badge warn" : "badge"}>${event.reason}</span>
          <span class="event-text">${event.message}${event.count > 1 && html` <span class="quiet">${event.count} times</span>`}</span>
        </li>`,
      )}
    </ul>
  </section>`;
}

async function readEvents(connection, { kind, namespace, name }, signal) {
  const fieldSelector = `involvedObject.kind=${kind},involvedObject.name=${name}`;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/events`;
  const { items = [] } = await connection.get(path, { fieldSelector, limit: 500 }, signal);
  return items.sort((one, other) => Date.parse(timeOf(other)) - Date.parse(timeOf(one))).slice(0, EVENTS_SHOWN);
}

function timeOf({ lastTimestamp, eventTime, metadata }) {
  return lastTimestamp ?? eventTime ?? metadata.creationTimestamp;
}
