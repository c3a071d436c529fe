/** Layout of tables and lists of fields in terminal columns. */
import truncatedWidth from "fast-string-truncated-width";
import { encodeLine, terminalWidth } from "../base/util/output.ts";

/** Column of a table. */
export interface TableColumn<T> {
  /** Heading of the column. */
  readonly title: string;
  /** Returns the text of a row's cell. */
  readonly cell: (row: T) => string;
  /** Side to which the text is aligned. @default "left" */
  readonly align?: "left" | "right";
  /** Keep the text whole in a narrow terminal, for identifiers that users copy. @default false */
  readonly isWhole?: boolean;
}

/** Spaces between two columns. */
const GAP = 2;
/** Width below which a column does not shrink. */
const MIN_WIDTH = 4;
/** End of a cut text. */
const ELLIPSIS = "…";

/** Returns the width of a text in terminal columns. */
const widthOf = (text: string): number => truncatedWidth(text).width;

/** Cuts a text to `width` terminal columns; a cut text ends with an ellipsis. Wide characters count two columns. */
function fit(text: string, width: number): string {
  const { index, ellipsed } = truncatedWidth(text, { limit: width, ellipsis: ELLIPSIS });
  return ellipsed ? text.slice(0, index) + ELLIPSIS : text.slice(0, index);
}

/**
 * Lays out a table: a line of headings, then one line per row. If the table is wider than `width`, the widest columns shrink first, except
 * columns with `isWhole`.
 *
 * @param width - Terminal columns. @default the width of the terminal; unlimited without one
 */
export function table<T>(rows: readonly T[], columns: readonly TableColumn<T>[], width = terminalWidth()): string[] {
  // Control characters are escaped first, because escaping changes the width of the printed text.
  const cells = [columns.map(({ title }) => title), ...rows.map((row) => columns.map(({ cell }) => encodeLine(cell(row))))];
  const widths = columns.map((_, index) => Math.max(...cells.map((line) => widthOf(line[index] ?? ""))));
  const shrinkable = columns.flatMap(({ isWhole }, index) => (isWhole === true ? [] : [index]));
  let excess = widths.reduce((sum, columnWidth) => sum + columnWidth + GAP, -GAP) - width;
  while (excess > 0) {
    const [widest] = shrinkable.toSorted((a, b) => (widths[b] ?? 0) - (widths[a] ?? 0));
    if (widest === undefined || (widths[widest] ?? 0) <= MIN_WIDTH) break;
    widths[widest] = (widths[widest] ?? 0) - 1;
    excess -= 1;
  }
  return cells.map((line) => {
    const paddedCells = line.map((text, index) => {
      const columnWidth = widths[index] ?? 0;
      const cut = fit(text, columnWidth);
      const padding = " ".repeat(Math.max(0, columnWidth - widthOf(cut)));
      return columns[index]?.align === "right" ? padding + cut : cut + padding;
    });
    return paddedCells.join(" ".repeat(GAP)).trimEnd();
  });
}

/** Lays out names and values of one object, one line each. */
export function fields(values: Readonly<Record<string, string>>): string[] {
  const width = Math.max(0, ...Object.keys(values).map(widthOf));
  return Object.entries(values).map(([name, value]) => `${name.padEnd(width)}  ${value}`);
}
