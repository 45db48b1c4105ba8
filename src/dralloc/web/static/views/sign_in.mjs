// What is shown where the server wants to know who is asking, or does not let them.

import { html, useState } from "../vendor/htm-preact.mjs";

export function SignIn({ status, signIn }) {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) signIn(token.trim());
  };
  return html`<section class="card sign-in">
    <h1>${status.status === 403 ? "You may not see this" : "Who is asking?"}</h1>
    <p role="alert">
      ${status.status === 403
        ? `The server knows you, but does not let you read what this page shows: ${status.message}`
        : "The server answers only to those it knows. Paste a token; it is kept for this tab only."}
    </p>
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck=${false} value=${token} onInput=${(event) => setToken(event.target.value)} />
      <button type="submit">Show the cluster</button>
    </form>
    <p class="hint">The administrator's token is the <code>token</code> in the kubeconfig that the server wrote.</p>
  </section>`;
}
