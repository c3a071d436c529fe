/** Column of a table: its label, or a label and its kind. `number` aligns right; `hidden` shows the label only to screen readers. */
export type Column = string | { readonly label: string; readonly kind: "number" | "hidden" };

/** Renders the head of a table. */
export function TableHead({ columns }: { readonly columns: readonly Column[] }) {
  return (
    <thead>
      <tr>
        {columns.map((column) => {
          const { label, kind = "text" } = typeof column === "string" ? { label: column } : column;
          return (
            <th key={label} scope="col" class={kind === "number" ? "num" : undefined}>
              {kind === "hidden" ? <span class="hidden">{label}</span> : label}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}
