import { h } from "./dom.ts";

const listeners = new Set<() => void>();
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", announce);

/** Calls `listener` when colors change. */
export function onTheme(listener: () => void): void {
  listeners.add(listener);
}

function announce(): void {
  for (const listener of listeners) listener();
}

/** Returns a color of the style sheet for use on a canvas: resolved, for the current theme. */
export function color(name: string): string {
  const probe = h("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Creates the control for light and dark. */
export function themeControl(): HTMLElement {
  const { dataset } = document.documentElement;
  const choose = () => {
    if (select.value === "auto") delete dataset["theme"];
    else dataset["theme"] = select.value;
    announce();
  };
  const options = Object.entries({ auto: "System", light: "Light", dark: "Dark" });
  const select = h(
    "select",
    { id: "theme", change: choose },
    options.map(([value, label]) => h("option", { value }, label)),
  );
  return h("label", { class: "control" }, h("span", {}, "Theme"), select);
}
