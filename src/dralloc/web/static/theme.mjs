// Runs before the first paint, as a plain script, to avoid a flash of the wrong theme.
// The reader's last choice wins; the default is the system's setting.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("dralloc.theme");
  } catch {
    // Without storage, follow the system.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
