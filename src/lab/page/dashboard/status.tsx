/** States, errors and waiting lines that the pages of the dashboard share. */
import type { ComponentChildren } from "preact";
import type { Column } from "../components/table.tsx";
import { ago, timeText } from "../components/time.ts";
import type { Resource } from "./requests.ts";

/** State of a run or job as a colored dot with its name. */
export function State({ name, title }: { readonly name: string; readonly title?: string | undefined }) {
  return (
    <span class="state" data-state={name} title={title}>
      {name}
    </span>
  );
}

/** Message of an error. */
export function Problem({ error }: { readonly error: Error | string }) {
  return (
    <p class="problem" role="alert">
      {typeof error === "string" ? error : error.message}
    </p>
  );
}

/** Returns a column of times relative to `now`, milliseconds since 1970. */
export function updatedColumn<Row>(label: string, now: number, time: (row: Row) => string | null | undefined): Column<Row> {
  return { label, kind: "number", class: "num updated", title: (row) => timeText(time(row)), cell: (row) => ago(time(row), now) };
}

/** Properties of {@link Loaded}. */
interface LoadedProps<T> {
  readonly resource: Resource<T>;
  /** Name of the contents for the waiting line: `runs`. */
  readonly what: string;
  readonly children: (value: T) => ComponentChildren;
}

/** Contents of a resource, or its error, or a line that says that it loads. */
export function Loaded<T>({ resource: { value, error }, what, children }: LoadedProps<T>) {
  if (error !== null) return <Problem error={error} />;
  if (value === undefined) return <p class="empty loading">{`Loading ${what} …`}</p>;
  return <>{children(value)}</>;
}
