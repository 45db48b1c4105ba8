// The credential, if the server requires one, and the namespace to show: kept for this tab only. A token is removed from the address at once.

import { decoded } from "./routes.mjs";

const TOKEN = "dralloc.token";
const NAMESPACE = "dralloc.namespace";

/** Removes the token from the address and returns it; empty without one. What is left is a route, so call it before the route is read. */
export function takeToken() {
  const { token, rest } = splitToken(location.hash);
  if (rest !== location.hash) history.replaceState(null, "", rest);
  return token;
}

/** Splits a fragment into token and route: `#token=…`, `#token=…#/pods` and `#/pods?token=…`. */
export function splitToken(hash) {
  const first = /^#token=([^#]*)(#.*)?$/.exec(hash);
  if (first) return { token: decoded(first[1]), rest: first[2] ?? "#/" };
  const [path, query = ""] = hash.split("?");
  const parameters = query.split("&");
  const others = parameters.filter((each) => !isToken(each));
  if (others.length === parameters.length) return { token: "", rest: hash };
  return { token: decoded(parameters.find(isToken).slice(PARAMETER.length)), rest: `${path}${others.length ? `?${others.join("&")}` : ""}` };
}

const PARAMETER = "token=";

function isToken(parameter) {
  return parameter.startsWith(PARAMETER);
}

export function rememberedToken() {
  return remembered(TOKEN);
}

export function rememberToken(token) {
  remember(TOKEN, token);
}

/** Returns the namespace that was chosen in this tab; empty for all. */
export function rememberedNamespace() {
  return remembered(NAMESPACE);
}

export function rememberNamespace(namespace) {
  remember(NAMESPACE, namespace);
}

function remembered(key) {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function remember(key, value) {
  try {
    if (value) sessionStorage.setItem(key, value);
    else sessionStorage.removeItem(key);
  } catch {
    // Without storage, the user enters it again next time.
  }
}
