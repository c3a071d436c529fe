/**
 * Attributes of an element. A function is the listener of the event of its name, a name with `--` is a CSS variable, `true` is an attribute
 * without a value; `false`, `null` and `undefined` are omitted.
 */
type Attributes = Readonly<Record<string, string | number | boolean | null | undefined | (() => void)>>;

/** Contents of an element: elements, texts and lists of them; `false`, `null` and `undefined` are omitted. */
export type Child = Node | string | number | false | null | undefined | readonly Child[];

/** Creates an element. Texts of a run are inserted as text, never as markup. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Returns an element by its id. The id must be in the page: `html.ts` and the sections of the page create all ids. */
export function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

/** Replaces the contents of an element. */
export function fill(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Replaces the contents of an element; the focus moves to the new control with the name of the focused one, for use by keyboard. */
export function refill(element: Element, ...children: readonly Child[]): void {
  const active = document.activeElement;
  const focused = active !== null && element.contains(active) ? controlName(active) : null;
  fill(element, ...children);
  if (focused === null) return;
  const all = element.querySelectorAll<HTMLButtonElement | HTMLInputElement | HTMLSelectElement>("button, input, select");
  const controls = [...all].filter((control) => !control.disabled);
  const same = controls.find((control) => controlName(control) === focused) ?? controls[0];
  same?.focus({ preventScroll: true });
}

function controlName(control: Element): string {
  const value = control instanceof HTMLInputElement && control.type === "radio" ? control.value : "";
  return `${control.getAttribute("aria-label")} ${control.id} ${control.getAttribute("name")} ${value}`;
}

function append(element: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (typeof child === "string" || typeof child === "number") element.append(String(child));
    else if (child instanceof Node) element.append(child);
    else if (child) append(element, child);
  }
}

/** Creates a table of names and values. */
export function pairs(rows: readonly (readonly [name: string, value: Child])[]): HTMLElement {
  const lines = rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, breakable(name)), h("td", {}, value)));
  return h("table", { class: "pairs" }, h("tbody", {}, lines));
}

/** Allows line breaks in a name between its parts only. */
function breakable(name: string): Child {
  return name.split(/(?<=[/_.])/).map((part) => [part, h("wbr")]);
}

/** An option of {@link segmented}. */
type Option = { readonly value: string; readonly label: string; readonly disabled?: boolean; readonly title?: string | null };

/** Creates a group of radio buttons that looks like one control. */
export function segmented<Each extends Option>(
  legend: string,
  options: readonly Each[],
  { name, value, onChange }: { readonly name: string; readonly value: string; readonly onChange: (chosen: Each) => void },
): HTMLElement {
  const radios = options.map((option) => {
    const { value: own, label, disabled, title } = option;
    const input = h("input", { type: "radio", name, value: own, checked: own === value, disabled, change: () => onChange(option) });
    return h("label", { title }, input, h("span", {}, label));
  });
  return h("fieldset", { class: "segmented" }, h("legend", {}, legend), radios);
}
