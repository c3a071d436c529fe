/** Tables of values, as CSV, Markdown, JSON and text. */
import { ArgumentError } from "../../base/errors.ts";
import { Displayable, type MediaBundle } from "./display.ts";

/** Value of a cell; null for a missing value. */
export type Cell = string | number | boolean | null;

/** Row of a table: values by column name. A missing name counts as null. */
export type Row = Readonly<Record<string, Cell>>;

/** Characters that require quotes in CSV. */
const QUOTED = /[",\r\n]/u;
/** Significant digits of numbers in Markdown; CSV and JSON have all digits. */
const SHOWN_DIGITS = 5;

/** Rows with named columns. In a notebook, a table shows itself. */
export class Table extends Displayable {
  /** Column names in order. */
  readonly columns: readonly string[];
  /** Objects with the values, in order. */
  readonly rows: readonly Row[];

  /**
   * Creates a table.
   *
   * @param rows - Values by column name; not copied.
   * @param columns - Columns in order; the names of all rows in order of first appearance if omitted.
   * @throws ArgumentError `E_ARGUMENT` for a duplicate column.
   */
  constructor(rows: readonly Row[], columns: readonly string[] = [...new Set(rows.flatMap((row) => Object.keys(row)))]) {
    super();
    const duplicate = columns.find((name, index) => columns.indexOf(name) !== index);
    if (duplicate !== undefined) throw new ArgumentError(`Expected each column once, got \`${duplicate}\` twice`, { param: "columns" });
    this.rows = rows;
    this.columns = columns;
  }

  /**
   * Returns the values of a column.
   *
   * @param name - Name of the column.
   * @returns One value per row.
   * @throws ArgumentError `E_ARGUMENT` for an unknown column; the message lists the columns.
   * @example
   * ```ts
   * new Table([{ run: "a", reward: 0.5 }]).column("reward"); // [0.5]
   * ```
   */
  column(name: string): Cell[] {
    if (!this.columns.includes(name))
      throw new ArgumentError(`Expected \`name\` to be one of the columns ${this.columns.join(", ")}, got \`${name}\``, { param: "name" });
    return this.rows.map((row) => row[name] ?? null);
  }

  /**
   * Returns the table as CSV with a header line, full precision and `\n` line ends. A missing value is an empty field.
   *
   * @returns Text that ends with a line end.
   * @source RFC 4180.
   * @example
   * ```ts
   * new Table([{ run: "a", reward: 0.5 }]).toCSV(); // "run,reward\na,0.5\n"
   * ```
   */
  toCSV(): string {
    const field = (value: Cell) => {
      const text = value === null ? "" : String(value);
      return QUOTED.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [this.columns, ...this.#cells()].map((cells) => `${cells.map(field).join(",")}\n`).join("");
  }

  /**
   * Returns the table as a GitHub Markdown table with five significant digits; columns of numbers are aligned to the right.
   *
   * @returns Text that ends with a line end.
   * @example
   * ```ts
   * console.log(new Table([{ run: "a", reward: 2 / 3 }]).toMarkdown()); // | a | 0.66667 |
   * ```
   */
  toMarkdown(): string {
    const escapedCell = (text: string) => text.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll(/\r?\n/gu, " ");
    const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |\n`;
    const rule = this.columns.map((name) => (this.#isNumeric(name) ? "---:" : "---"));
    const rows = this.#cells().map((cells) => line(cells.map((value) => escapedCell(cellText(value)))));
    return [line(this.columns.map(escapedCell)), line(rule), ...rows].join("");
  }

  /**
   * Returns the rows with all columns, for `JSON.stringify`.
   *
   * @returns One object per row; missing values are null.
   */
  toJSON(): Record<string, Cell>[] {
    return this.rows.map((row) => Object.fromEntries(this.columns.map((name) => [name, row[name] ?? null])));
  }

  /**
   * Returns the table as Markdown, which notebooks render, and as text.
   *
   * @returns Contents by media type.
   */
  override toMedia(): MediaBundle {
    return { "text/markdown": this.toMarkdown(), "text/plain": this.toString() };
  }

  /** Returns the table as text with aligned columns. */
  override toString(): string {
    const cells = [this.columns, ...this.#cells().map((row) => row.map(cellText))];
    const widths = this.columns.map((_, index) => Math.max(...cells.map((row) => (row[index] as string).length)));
    const pad = (text: string, index: number) =>
      this.#isNumeric(this.columns[index] as string) ? text.padStart(widths[index] as number) : text.padEnd(widths[index] as number);
    return cells.map((row) => row.map(pad).join("  ").trimEnd()).join("\n");
  }

  /** Returns the values of each row in the order of the columns. */
  #cells(): Cell[][] {
    return this.rows.map((row) => this.columns.map((name) => row[name] ?? null));
  }

  /** Whether a column has numbers and missing values only. */
  #isNumeric(name: string): boolean {
    return this.rows.some((row) => typeof row[name] === "number") && this.rows.every((row) => typeof (row[name] ?? 0) === "number");
  }
}

/** Returns a value as text; fractions with {@link SHOWN_DIGITS} digits. */
function cellText(value: Cell): string {
  if (value === null) return "";
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(SHOWN_DIGITS))) : String(value);
}
