// Runs before anything is drawn, as a plain script: a page that is light for a moment and then dark hurts.
// What the reader chose last counts; without a choice, what the system says.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("dralloc.theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
