// Shown if the server requires authentication or denies access, and to act as another user.

import { html, useState } from "../vendor/htm-preact.mjs";
import { NamespaceForm } from "./denied.mjs";

function textOf({ status, message, hadToken }) {
  if (status === 403) return `You are signed in, but lack permission to read what this page shows: ${message}`;
  if (status === undefined) return "Paste the token of another user; it is kept for this tab only. The page shows what that user may see.";
  if (hadToken) return "The server rejected this token. Paste another one.";
  return "The server requires authentication. Paste a token; it is kept for this tab only.";
}

export function SignIn({ status, signIn, hasToken = false, namespace, chooseNamespace }) {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    // Accept the quotes of a kubeconfig.
    const pasted = token.trim().replace(/^(["'])(.*)\1$/, "$2");
    if (pasted) signIn(pasted);
  };
  return html`<section class="card sign-in">
    <h1>${status.status === 403 ? "Access denied" : "Sign in"}</h1>
    <p role="alert">${textOf(status)}</p>
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck=${false} value=${token} onInput=${(event) => setToken(event.target.value)} />
      <button type="submit">Sign in</button>
    </form>
    ${hasToken && html`<p><button type="button" class="link" onClick=${() => signIn("")}>Sign out</button></p>`}
    ${status.status === 403 && html`<p>You may have permission in one namespace:</p><${NamespaceForm} namespace=${namespace} chooseNamespace=${chooseNamespace} />`}
    <p class="hint">The administrator's token is the <code>token</code> in the kubeconfig that the server wrote.</p>
  </section>`;
}
