/** Reading and validation of files with training examples in any of the formats of `example-formats.ts`. */
import { DataError } from "../../base/errors.ts";
import type { Trajectory } from "../../base/trajectory/index.ts";
import { parseJson } from "../../base/util/values.ts";
import { chatExampleOf, trajectoryOf } from "./chat.ts";
import { Dataset } from "./dataset.ts";
import { formatOf, toChatLine, type ExampleFormat } from "./example-formats.ts";
import type { ReadOptions } from "./jsonl.ts";
import { readLines } from "./lines.ts";
import { expandPaths, type Patterns } from "./paths.ts";
import { unversioned } from "./records.ts";
import { readRecords, trajectoriesOf } from "./trajectories.ts";

/** A line of a data file that `readExamples` rejects. */
export interface InvalidLine {
  /** Path of the file. */
  readonly file: string;
  /** Line number, from 1. */
  readonly line: number;
  /** Reason, with the path inside the line. */
  readonly message: string;
}

/** Result of {@link validateExamples}. */
export interface ValidatedExamples {
  /** Number of lines that are not blank. */
  readonly lines: number;
  /** Number of examples in the valid lines; a group counts once per trajectory. */
  readonly examples: number;
  /** Number of valid lines by their format. */
  readonly formats: Readonly<Partial<Record<ExampleFormat, number>>>;
  /** Invalid lines in file order. */
  readonly invalid: readonly InvalidLine[];
}

/**
 * Reads training examples from JSON Lines files, lazily. A line is a trajectory, a group, which yields its trajectories, or a chat line, which
 * becomes a trajectory without sampled turns. Lines with `prompt` and `completion` (TRL), `conversations` (ShareGPT), or `instruction` and
 * `output` (Alpaca) are read as chat lines. One file may contain all kinds.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Handling of a torn last line, and a signal.
 * @returns Dataset; each iteration reads the files again. Iterating throws DataError `E_DATA` with file and line, or for a pattern that
 *   matches nothing.
 * @example
 * ```ts
 * const { train, validation } = readExamples("data/*.jsonl").split({ validation: 0.05, seed: 7 });
 * console.log((await train.toArray()).length, (await validation.toArray()).length);
 * ```
 */
export function readExamples(patterns: Patterns, options: ReadOptions = {}): Dataset {
  return Dataset.from({
    async *[Symbol.asyncIterator]() {
      for await (const { value, where } of readRecords(patterns, options)) yield* examplesOf(value, where);
    },
  });
}

/**
 * Checks every line of JSON Lines files, and continues after an invalid line, unlike the readers.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Signal.
 * @returns Number of lines and examples, and all invalid lines.
 * @throws DataError `E_DATA` for a file that cannot be read, or a pattern that matches nothing.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const { lines, invalid } = await validateExamples("data/*.jsonl");
 * for (const { file, line, message } of invalid) console.log(`${file}:${line}: ${message}`);
 * console.log(`${invalid.length} of ${lines} lines are invalid`);
 * ```
 */
export async function validateExamples(patterns: Patterns, { signal }: Pick<ReadOptions, "signal"> = {}): Promise<ValidatedExamples> {
  const invalid: InvalidLine[] = [];
  let lines = 0;
  let examples = 0;
  const formats: Partial<Record<ExampleFormat, number>> = {};
  for (const file of await expandPaths(patterns)) {
    for await (const { line, text } of readLines(file, { signal })) {
      signal?.throwIfAborted();
      if (text?.trim() === "") continue;
      lines++;
      const where = `${file}:${line}`;
      try {
        const value = unversioned(parseLine(text, where), where);
        examples += examplesOf(value, where).length;
        const format = formatOf(value);
        formats[format] = (formats[format] ?? 0) + 1;
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        invalid.push({ file, line, message: error.message.replace(`${where}: `, "") });
      }
    }
  }
  return { lines, examples, formats, invalid };
}

/** Converts a line of any format to its trajectories: several for a group, else one. */
function examplesOf(value: unknown, where: string): readonly Trajectory[] {
  const format = formatOf(value);
  if (format === "trajectory") return trajectoriesOf(value, where);
  const line = format === "chat" ? value : toChatLine(value, format, where);
  return [trajectoryOf(chatExampleOf(line, where), 0)];
}

/** Parses the text of a line. @param text - Null if the line is not valid UTF-8. */
function parseLine(text: string | null, where: string): unknown {
  const value = text === null ? undefined : parseJson(text);
  if (value !== undefined) return value;
  throw new DataError(`${where}: expected one JSON value on the line${text === null ? "; it is not UTF-8" : ""}`);
}
