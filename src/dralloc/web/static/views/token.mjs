// The credential, where the server wants one: kept for this tab only, and taken out of the address at once.

const KEY = "dralloc.token";

/** The token from the address (`#token=…`), or the one that was given before. */
export function rememberedToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match) {
    history.replaceState(null, "", `${location.pathname}#/`);
    return decodeURIComponent(match[1]);
  }
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function rememberToken(token) {
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Then it is asked for again next time.
  }
}
