// Dark or light: as the system says, until the reader chooses.

import { html, useEffect, useState } from "../vendor/htm-preact.mjs";

function currentTheme() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(currentTheme());
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setTheme(currentTheme());
    system.addEventListener("change", follow);
    return () => system.removeEventListener("change", follow);
  }, []);
  const choose = () => {
    const other = currentTheme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = other;
    try {
      localStorage.setItem("dralloc.theme", other);
    } catch {
      // Then it holds until the page is closed.
    }
    setTheme(other);
  };
  const next = theme === "dark" ? "light" : "dark";
  return html`<button class="icon-button" type="button" onClick=${choose} aria-label=${`Use the ${next} theme`} title=${`Use the ${next} theme`}>
    <span aria-hidden="true">${theme === "dark" ? "☀" : "☾"}</span>
  </button>`;
}
