/** Output of tables, charts and comparisons in notebooks. */
import { inspect } from "node:util";

/** Contents of a notebook output by media type. */
export type MediaBundle = Readonly<Record<string, string>>;

/** Functions of tslab's module `tslab` that show an output. */
interface TslabDisplay {
  readonly display: { readonly raw: (mediaType: string, content: string) => void };
}

/**
 * Base of values that show themselves in notebooks: as the value of a cell in Deno's kernel, and as the value of a cell or an argument of
 * `console.log` in tslab, whose kernel prints the value of a cell with `console.log`.
 */
export abstract class Displayable {
  /**
   * Returns the value as media types, in the order of preference.
   *
   * @returns Contents by media type; `text/plain` is one of them.
   */
  abstract toMedia(): MediaBundle;

  /**
   * Returns the value for Deno's notebook kernel.
   *
   * @returns Contents by media type.
   */
  [Symbol.for("Jupyter.display")](): MediaBundle {
    return this.toMedia();
  }

  /**
   * Returns the text for `console.log`. In tslab, shows the value as an output instead and returns an empty text.
   *
   * @returns Text of the value.
   */
  [inspect.custom](): string {
    const media = this.toMedia();
    const tslab = tslabModule();
    const richMedia = Object.entries(media).find(([type]) => type !== "text/plain");
    if (tslab === null || richMedia === undefined) return media["text/plain"] ?? "";
    tslab.display.raw(...richMedia);
    return "";
  }
}

/** Returns tslab's own module; null outside its kernel, which sets the global `__tslab__` for the code of cells. */
function tslabModule(): TslabDisplay | null {
  const kernel: unknown = Reflect.get(globalThis, "__tslab__");
  if (typeof kernel !== "object" || kernel === null) return null;
  const load: unknown = Reflect.get(kernel, "require");
  return typeof load === "function" ? (load("tslab") as TslabDisplay) : null;
}
