// What is shown where the server wants to know who is asking, or does not let them.

import { html, useState } from "../vendor/htm-preact.mjs";

function textOf({ status, message, hadToken }) {
  if (status === 403) return `The server knows you, but does not let you read what this page shows: ${message}`;
  if (hadToken) return "The server does not know this token. Paste another one.";
  return "The server answers only to those it knows. Paste a token; it is kept for this tab only.";
}

export function SignIn({ status, signIn }) {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    // As it stands in the kubeconfig, with its quotes, it is copied most easily.
    const pasted = token.trim().replace(/^(["'])(.*)\1$/, "$2");
    if (pasted) signIn(pasted);
  };
  return html`<section class="card sign-in">
    <h1>${status.status === 403 ? "You may not see this" : "Who is asking?"}</h1>
    <p role="alert">${textOf(status)}</p>
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck=${false} value=${token} onInput=${(event) => setToken(event.target.value)} />
      <button type="submit">Show the cluster</button>
    </form>
    <p class="hint">The administrator's token is the <code>token</code> in the kubeconfig that the server wrote.</p>
  </section>`;
}
