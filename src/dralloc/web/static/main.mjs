// The page: one cluster model, one live connection, redrawn when either changes.

import { Connection } from "./api/connection.mjs";
import { Live } from "./api/live.mjs";
import { World } from "./model/world.mjs";
import { html, render } from "./vendor/htm-preact.mjs";
import { App } from "./views/app.mjs";
import { parseRoute } from "./views/routes.mjs";
import { rememberedNamespace, rememberedToken, rememberNamespace, rememberToken, takeToken } from "./views/token.mjs";

// Limits redraws while thousands of objects arrive; the longer a redraw takes, the rarer they get.
const REDRAW_EVERY_MS = 120;
const REST_PER_DRAWING = 4;

const given = takeToken();
const state = { world: new World(), status: { phase: "loading", kind: "" }, route: parseRoute(location.hash), namespace: rememberedNamespace(), connection: null, live: null };

let isDue = false;
let nextAt = 0;

function redraw() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, nextAt - performance.now()));
}

function draw() {
  isDue = false;
  const begun = performance.now();
  render(html`<${App} ...${state} version=${state.world.version} signIn=${connect} chooseNamespace=${chooseNamespace} />`, document.getElementById("page"));
  const took = performance.now() - begun;
  nextAt = begun + took + Math.max(REDRAW_EVERY_MS, REST_PER_DRAWING * took);
}

function connect(token) {
  state.live?.pause();
  rememberToken(token);
  // Nothing of what another user may see is kept.
  state.world = new World();
  state.connection = new Connection(token);
  state.live = new Live(state.world, state.connection, {
    tell: (status) => {
      state.status = status;
      redraw();
    },
    changed: redraw,
    namespace: state.namespace,
  });
  if (!document.hidden) state.live.start();
}

function chooseNamespace(namespace) {
  state.namespace = namespace;
  rememberNamespace(namespace);
  connect(state.connection.token);
}

addEventListener("hashchange", () => {
  // A link with a token that is opened where the page is open already loads nothing.
  const token = takeToken();
  state.route = parseRoute(location.hash);
  if (token) connect(token);
  draw();
});
document.addEventListener("visibilitychange", () => (document.hidden ? state.live.pause() : state.live.start()));

document.getElementById("page").replaceChildren();
connect(given || rememberedToken());
draw();
