// The credential, if the server requires one, and the namespace to show: kept for this tab only. A token is removed from the address at once.

const TOKEN = "dralloc.token";
const NAMESPACE = "dralloc.namespace";

/** Returns the token from the address (`#token=…`), or the stored one. */
export function rememberedToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match) {
    history.replaceState(null, "", `${location.pathname}#/`);
    return decodeURIComponent(match[1]);
  }
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
