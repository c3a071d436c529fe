/**
 * Makes an element. Everything that came from a run goes in as text, never as markup.
 *
 * @param {string} tag
 * @param {Record<string, unknown>} [props] `class`, `on` (event → listener), `vars` (CSS variables), else attributes; `false` and `null` are left out.
 * @param {...unknown} children Elements, texts and lists of them; `false`, `null` and `undefined` are left out.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else if (name === "vars") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, String(each));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Replaces what is inside an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** The same, with the focus left on the control that has the same name, so that the keyboard can go on from there. */
export function refill(element, ...children) {
  const focused = element.contains(document.activeElement) ? controlName(document.activeElement) : null;
  fill(element, ...children);
  if (focused === null) return;
  const controls = [...element.querySelectorAll("button, input, select")].filter((control) => !control.disabled);
  const same = controls.find((control) => controlName(control) === focused) ?? controls[0];
  same?.focus({ preventScroll: true });
}

function controlName(control) {
  return `${control.getAttribute("aria-label")} ${control.id} ${control.name} ${control.type === "radio" ? control.value : ""}`;
}

function append(element, children) {
  for (const child of children.flat(Number.POSITIVE_INFINITY)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** A table of names and values. */
export function pairs(rows, caption) {
  return h(
    "table",
    { class: "pairs" },
    caption && h("caption", {}, caption),
    h(
      "tbody",
      {},
      rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, breakable(name)), h("td", {}, value))),
    ),
  );
}

/** A name that may be broken where its parts meet, rather than anywhere. */
function breakable(name) {
  return name.split(/(?<=[/_.])/).map((part) => [part, h("wbr")]);
}

/** A group of radio buttons that looks like one control. `options`: `{ value, label, disabled?, title? }`. */
export function segmented(legend, options, { name, value, onChange }) {
  return h(
    "fieldset",
    { class: "segmented" },
    h("legend", {}, legend),
    options.map((option) =>
      h(
        "label",
        { title: option.title },
        h("input", {
          type: "radio",
          name,
          value: option.value,
          checked: option.value === value,
          disabled: option.disabled,
          on: { change: () => onChange(option.value) },
        }),
        h("span", {}, option.label),
      ),
    ),
  );
}
