// Dark or light: the system's setting, unless the reader chooses.

import { html, useEffect, useState } from "../vendor/htm-preact.mjs";

const CHOSEN = "dralloc:theme";

function currentTheme() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function otherThan(theme) {
  return theme === "dark" ? "light" : "dark";
}

/** The theme, for drawings that do not use styles. */
export function useTheme() {
  const [theme, setTheme] = useState(currentTheme());
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setTheme(currentTheme());
    system.addEventListener("change", follow);
    addEventListener(CHOSEN, follow);
    return () => {
      system.removeEventListener("change", follow);
      removeEventListener(CHOSEN, follow);
    };
  }, []);
  return theme;
}

export function ThemeSwitch() {
  const theme = useTheme();
  const choose = () => {
    const other = otherThan(currentTheme());
    document.documentElement.dataset.theme = other;
    try {
      localStorage.setItem("dralloc.theme", other);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
    dispatchEvent(new Event(CHOSEN));
  };
  const said = `Use the ${otherThan(theme)} theme`;
  return html`<button class="icon-button" type="button" onClick=${choose} aria-label=${said} title=${said}>
    <span aria-hidden="true">${theme === "dark" ? "☀" : "☾"}</span>
  </button>`;
}
