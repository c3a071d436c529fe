import { h } from "./dom.js";

const listeners = new Set();
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", announce);

/** Calls `listener` when colours change. */
export function onTheme(listener) {
  listeners.add(listener);
}

function announce() {
  for (const listener of listeners) listener();
}

/** A colour of the style sheet as a canvas can use it: resolved, for the theme in force. */
export function color(name) {
  const probe = h("span", { vars: { color: `var(--${name})` } });
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** The control for light and dark. */
export function themeControl() {
  const choose = (event) => {
    if (event.target.value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = event.target.value;
    announce();
  };
  return h(
    "label",
    { class: "control" },
    h("span", {}, "Theme"),
    h(
      "select",
      { id: "theme", on: { change: choose } },
      [
        ["auto", "System"],
        ["light", "Light"],
        ["dark", "Dark"],
      ].map(([value, label]) => h("option", { value }, label)),
    ),
  );
}
