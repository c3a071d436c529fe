import type { Order } from "./run-columns.ts";

/** Column of a table: its label, or a label and its kind. `number` aligns right; `hidden` shows the label only to screen readers. */
export type Column = string | ColumnHead;

interface ColumnHead {
  readonly label: string;
  readonly kind?: "number" | "hidden" | "text";
  /** Order by this column; null if the rows are sorted by another one. Without it, rows cannot be sorted by the column. */
  readonly order?: Order | null | undefined;
  /** Called when the head is pressed. */
  readonly onSort?: (() => void) | undefined;
}

/** Renders the head of a table. */
export function TableHead({ columns }: { readonly columns: readonly Column[] }) {
  return (
    <thead>
      <tr>
        {columns.map((column) => {
          const { label, kind = "text", order, onSort } = typeof column === "string" ? ({ label: column } as ColumnHead) : column;
          return (
            <th
              key={label}
              scope="col"
              class={kind === "number" ? "num" : undefined}
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
        })}
      </tr>
    </thead>
  );
}
