/** Tables with a head, optionally sorted by their columns. */
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

/** Properties of {@link DataTable}. */
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
            {columns.map((column, position) => cellOf(column, row, position))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Head of a column; a button if the rows can be sorted by the column. */
function headOf<Row>(column: Column<Row>, index: number) {
  const { kind = "text", headClass, order } = column;
  return (
    <th
      key={index}
      scope="col"
      class={headClass ?? (kind === "number" ? "num" : undefined)}
      aria-sort={order === undefined ? undefined : (order ?? "none")}
    >
      {headContent(column)}
    </th>
  );
}

/** Signs of the orders. */
const ORDER_SIGNS = { ascending: " ↑", descending: " ↓", none: "" } as const;

/** Content of a column's head. */
function headContent<Row>({ label, kind, order, onSort }: Column<Row>) {
  if (kind === "hidden") return <span class="hidden">{label}</span>;
  if (onSort === undefined) return label;
  return (
    <button type="button" class="sort" onClick={onSort}>
      {label}
      <span aria-hidden="true">{ORDER_SIGNS[order ?? "none"]}</span>
    </button>
  );
}

/** Cell of a row in a column. */
function cellOf<Row>(column: Column<Row>, row: Row, index: number) {
  const { label, kind, isHead = false, class: cellClass, isLabeled = false, title, cell } = column;
  if (isHead) {
    return (
      <th key={index} scope="row">
        {cell(row)}
      </th>
    );
  }
  const defaultClass = kind === "number" ? "num" : undefined;
  const classes = typeof cellClass === "function" ? cellClass(row) : (cellClass ?? defaultClass);
  return (
    <td key={index} class={classes} data-label={isLabeled ? label : undefined} title={title?.(row)}>
      {cell(row)}
    </td>
  );
}
