// The credential, if the server requires one: kept for this tab only, and removed from the address at once.

const KEY = "dralloc.token";

/** Returns the token from the address (`#token=…`), or the stored one. */
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
    // Without storage, the user enters it again next time.
  }
}
