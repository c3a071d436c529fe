/**
 * Output of commands. A result goes to standard output, as text or with `--json` as JSON; messages about the work go to standard error.
 * `createProgram` adds `--json` to every command.
 */
import { printLine } from "../base/util/output.ts";

/** Option of every command. */
export interface OutputOptions {
  /** Print JSON instead of text. */
  readonly json?: boolean;
}

/** Description of `--json` in the help of every command. */
export const JSON_HELP = "print JSON instead of text: one document, or one per line for a stream";

/**
 * Prints the result of a command.
 *
 * @param result - Value that `--json` prints as one line of JSON.
 * @param text - Returns the lines that are printed without `--json`.
 */
export function printResult<T>({ json }: OutputOptions, result: T, text: (result: T) => Iterable<string>): void {
  if (json === true) printLine(JSON.stringify(result));
  else for (const line of text(result)) printLine(line);
}

/** Returns a number with its noun: `1 rollout`, `2 rollouts`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Formats a mean with its confidence interval; only the mean if the interval is NaN, as for a single scenario. */
export function formatInterval({ mean, low, high }: { readonly mean: number; readonly low: number; readonly high: number }): string {
  return Number.isNaN(low) ? mean.toFixed(4) : `${mean.toFixed(4)} (${low.toFixed(4)} to ${high.toFixed(4)})`;
}
