import type { ComponentChildren } from "preact";

/** Column of a {@link DataTable}. */
export interface Column<Row> {
  /** Text of the head. */
  readonly label: string;
  /** `number` aligns right; `hidden` shows the label only to screen readers. @default "text" */
  readonly kind?: "number" | "hidden" | "text";
  /** Whether its cells are the heads of the rows. @default false */
  readonly isHead?: boolean;
  readonly headClass?: string;
  /** Class of the cells. @default `num` for numbers */
  readonly class?: string | ((row: Row) => string | undefined);
  /** Whether the cells have the label on a narrow screen. @default false */
  readonly isLabeled?: boolean;
  /** Returns the tooltip of a cell. */
  readonly title?: (row: Row) => string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Order by this column; null if the rows are sorted by another one. Without it, rows cannot be sorted by the column. */
  readonly order?: "ascending" | "descending" | null;
  /** Called when the head is pressed. */
  readonly onSort?: () => void;
}

interface TableProps<Row> {
  /** Classes of the table in the style sheet. */
  readonly class: string;
  readonly caption?: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row, index: number) => string | number;
  readonly rowClass?: (row: Row) => string;
}

/** Table with a head and one row per item. */
export function DataTable<Row>({ class: classes, caption, columns, rows, keyOf, rowClass }: TableProps<Row>) {
  return (
    <table class={classes}>
      {caption !== undefined && <caption>{caption}</caption>}
      <thead>
        <tr>{columns.map(headOf)}</tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={keyOf(row, index)} class={rowClass?.(row)}>
            {columns.map((column, index) => cellOf(column, row, index))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Head of a column; a button if the rows can be sorted by the column. */
function headOf<Row>({ label, kind = "text", headClass, order, onSort }: Column<Row>, index: number) {
  return (
    <th
      key={index}
      scope="col"
      class={headClass ?? (kind === "number" ? "num" : undefined)}
      aria-sort={order === undefined ? undefined : (order ?? "none")}
    >
      {kind === "hidden" ? (
        <span class="hidden">{label}</span>
      ) : onSort === undefined ? (
        label
      ) : (
        <button type="button" class="sort" onClick={onSort}>
          {label}
          <span aria-hidden="true">{order === "ascending" ? " ↑" : order === "descending" ? " ↓" : ""}</span>
        </button>
      )}
    </th>
  );
}

/** Cell of a row in a column. */
function cellOf<Row>({ label, kind, isHead = false, class: given, isLabeled = false, title, cell }: Column<Row>, row: Row, index: number) {
  if (isHead) {
    return (
      <th key={index} scope="row">
        {cell(row)}
      </th>
    );
  }
  const classes = typeof given === "function" ? given(row) : (given ?? (kind === "number" ? "num" : undefined));
  return (
    <td key={index} class={classes} data-label={isLabeled ? label : undefined} title={title?.(row)}>
      {cell(row)}
    </td>
  );
}
