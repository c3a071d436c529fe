/** Light and dark theme of the pages, and the colors of the style sheet for canvases. */
import { useEffect, useState } from "preact/hooks";

/** Key of the theme in the local storage. */
const KEY = "whetstone-theme";
/** Event of the window after a choice of a theme. */
const CHANGE = "whetstone-theme";

/** Calls the component again when colors change; returns a value that differs from one set of colors to the next. */
export function useTheme(): number {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const listener = () => setVersion((before) => before + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", listener);
    addEventListener(CHANGE, listener);
    return () => {
      dark.removeEventListener("change", listener);
      removeEventListener(CHANGE, listener);
    };
  }, []);
  return version;
}

/** Returns a color of the style sheet for use on a canvas: resolved, for the current theme. */
export function color(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Returns the theme of the last visit; `auto`, which follows the system, without one or if storage is blocked. */
function storedTheme(): string {
  try {
    return localStorage.getItem(KEY) ?? "auto";
  } catch {
    return "auto";
  }
}

/** Shows the page in a theme. */
function apply(theme: string): void {
  const { dataset } = document.documentElement;
  if (theme === "light" || theme === "dark") dataset["theme"] = theme;
  else delete dataset["theme"];
}

/** Control for light and dark. The choice is kept for the next visit. */
export function ThemeControl() {
  const [theme, setTheme] = useState(() => {
    const stored = storedTheme();
    apply(stored);
    return stored;
  });
  const choose = (value: string) => {
    apply(value);
    setTheme(value);
    try {
      localStorage.setItem(KEY, value);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
    dispatchEvent(new Event(CHANGE));
  };
  return (
    <label class="control">
      <span>Theme</span>
      <select id="theme" value={theme} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        <option value="auto">System</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}
