/** Result of all chart functions: an SVG document that notebooks show and `write` stores. */
import { replaceFile } from "../../base/util/replace-file.ts";
import { Displayable, type MediaBundle } from "./display.ts";

/** Chart as SVG. In a notebook, a chart shows itself; elsewhere, `write` stores it as a file. */
export class Chart extends Displayable {
  /** Title of the chart; empty without one. */
  readonly title: string;
  /** Complete SVG document, without script and without references to other files. */
  readonly svg: string;

  /** @internal */
  constructor(title: string, svg: string) {
    super();
    this.title = title;
    this.svg = svg;
  }

  /**
   * Writes the SVG to a file, replacing an existing one atomically.
   *
   * @param path - Path of the file; its directory must exist.
   * @example
   * ```ts
   * import { lineChart } from "whetstone/experiment";
   *
   * await lineChart({ series: [{ name: "loss", points: [[0, 1], [1, 0.5]] }] }).write("loss.svg");
   * ```
   */
  async write(path: string): Promise<void> {
    await replaceFile(path, this.svg);
  }

  /**
   * Returns the SVG for notebooks, and a line of text for consoles.
   *
   * @returns Contents by media type.
   */
  override toMedia(): MediaBundle {
    return {
      "image/svg+xml": this.svg,
      "text/plain": `Chart${this.title === "" ? "" : ` "${this.title}"`}, ${this.svg.length} characters of SVG`,
    };
  }

  /** Returns the SVG. */
  override toString(): string {
    return this.svg;
  }
}
