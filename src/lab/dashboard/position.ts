/** Position up to which a browser knows the files of a run, so that the event stream continues from there. */
import { ArgumentError } from "../../base/errors.ts";

/** Offsets in bytes in the files of a run. */
export interface RunPosition {
  readonly events: number;
  readonly metrics: number;
}

/** Formats a position for an answer or an SSE id. */
export function formatPosition({ events, metrics }: RunPosition): string {
  return `${events}.${metrics}`;
}

/**
 * Parses the form of {@link formatPosition}.
 *
 * @throws ArgumentError `E_ARGUMENT` for another text.
 */
export function parsePosition(text: string): RunPosition {
  const [, events, metrics] = /^(\d{1,15})\.(\d{1,15})$/u.exec(text) ?? [];
  if (events !== undefined && metrics !== undefined) return { events: Number(events), metrics: Number(metrics) };
  throw new ArgumentError(`Expected a position of the form 120.3400, as in the answer with the metrics, got ${JSON.stringify(text)}`, {
    param: "run",
  });
}
