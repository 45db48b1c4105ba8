// Addresses inside the page: `#/claims/NAMESPACE/NAME?q=text&page=2`. Searches are part of the address and can be shared.

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  const [view, ...rest] = parts;
  if (view === undefined) return { view: "devices", parameters };
  if ((view === "sign-in" || view === "find") && rest.length === 0) return { view, parameters };
  if (view === "nodes" && rest.length === 1) return { view: "node", name: rest[0], parameters };
  if (view === "pools" && rest.length === 2) return { view: "pool", driver: rest[0], name: rest[1], parameters };
  if (view === "devices" && rest.length === 3) return { view: "device", driver: rest[0], pool: rest[1], name: rest[2], parameters };
  if ((view === "claims" || view === "pods") && rest.length === 0) return { view, parameters };
  if ((view === "claims" || view === "pods") && rest.length === 2) {
    return { view: view === "claims" ? "claim" : "pod", key: rest.join("/"), parameters };
  }
  if (view === "podgroups" && rest.length === 2) return { view: "podgroup", key: rest.join("/"), parameters };
  return { view: "nowhere", parameters };
}

export function href(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function hrefOf(kind, key) {
  return href(kind, ...key.split("/"));
}

/** The address of a device, or of one share of it. `pool` is anything with a driver and a pool. */
export function deviceHref({ driver, pool }, name, shareID = null) {
  return `${href("devices", driver, pool, name)}${shareID ? `?${new URLSearchParams({ share: shareID })}` : ""}`;
}

/** Changes the search parameters without adding a history entry for each key press. */
export function setParameters(changes) {
  const [path, query = ""] = location.hash.split("?");
  const parameters = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) parameters.delete(name);
    else parameters.set(name, value);
  }
  const text = parameters.toString();
  history.replaceState(null, "", `${path || "#/"}${text ? `?${text}` : ""}`);
  dispatchEvent(new Event("hashchange"));
}

/** Returns the text as it is if its escapes are damaged. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
