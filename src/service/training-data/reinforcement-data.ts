/** Reading of the data of reinforcement jobs: rows with a prompt and the members that a grader compares the answer with. */
import { z } from "zod";
import { DataError, WhetstoneError, type ErrorCode } from "../../base/errors.ts";
import { requestMessage, tool, type RequestMessage, type Tool } from "../../base/schema/index.ts";
import { requireValid } from "../../base/util/validation.ts";
import { last } from "../../base/util/values.ts";
import { TRAJECTORY_LIMITS } from "../http/request-limits.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { readDataLines, useLines, type LineFormat, type LineSource } from "./data-lines.ts";

/** File and limits of the data; an optional `metadata.json` gives the number of rows as `num_rows`. */
const FORMAT: LineFormat = { file: "train.jsonl", countKey: "num_rows", limits: TRAJECTORY_LIMITS };

/** Codes of errors that a request's data cause, such as a row or a response format. Errors with other codes are failures of the service. */
export const DATA_ERRORS: readonly ErrorCode[] = ["E_ARGUMENT", "E_DATA", "E_UNSUPPORTED"];

/** Schema of the members that the service itself reads. Others are allowed: a grader may read any member. */
const rowSchema = z.looseObject({
  messages: z.array(requestMessage).min(1),
  tools: z.array(tool).nullish(),
});

/** Row of the data: a prompt, and values for the grader. */
export interface ReinforcementRow {
  readonly messages: readonly RequestMessage[];
  readonly tools: readonly Tool[];
  /** The whole row as uploaded: `item` in the templates of a grader. */
  readonly item: Readonly<Record<string, unknown>>;
}

/** Options of {@link readReinforcementRows}. */
export interface ReadRowsOptions {
  readonly files: Pick<StoredFiles, "useBlobs">;
  /** Request field that names the file. */
  readonly param: string;
  /**
   * Checks a row. An error with one of {@link DATA_ERRORS} becomes a `DataError` that names file and line; others are rethrown.
   *
   * @default no check
   */
  readonly check?: ((row: ReinforcementRow) => void | Promise<void>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads and validates every row of a file.
 *
 * @throws DataError `E_DATA` naming file and line of a row that cannot be parsed, is invalid or fails the check; also for a file without
 *   rows, or with another number of rows than its metadata.
 * @throws the errors of {@link useLines}, of {@link ReadRowsOptions.check}, and of `signal`.
 */
export async function readReinforcementRows(artifact: StoredArtifact, options: ReadRowsOptions): Promise<ReinforcementRow[]> {
  return useLines(artifact, FORMAT, options, (source) => readRows(source, options));
}

/** Reads and checks the rows of a file whose digest was verified. */
async function readRows(source: LineSource, { param, check, signal }: ReadRowsOptions): Promise<ReinforcementRow[]> {
  // `check` may be asynchronous, so it runs below, not in the conversion of the line; `where` names the line in its errors.
  const { file, lines } = readDataLines(source, FORMAT, (value, where) => ({ row: rowOf(value), where }), signal);
  const rows: ReinforcementRow[] = [];
  for await (const { row, where } of lines) {
    try {
      await check?.(row);
    } catch (cause) {
      // A failure of the service, such as a worker thread that died, is not an error of the data.
      if (!WhetstoneError.isInstance(cause) || !DATA_ERRORS.includes(cause.code)) throw cause;
      throw new DataError(`${where}: ${cause.message}`, { cause, param });
    }
    rows.push(row);
  }
  if (rows.length === 0) throw new DataError(`${file}: nothing to train: the file is empty`, { param });
  return rows;
}

/**
 * Converts the parsed JSON of a line to a row.
 *
 * @throws ArgumentError `E_ARGUMENT` if the value does not match {@link rowSchema}.
 * @throws DataError `E_DATA` if the last message is not from the user.
 */
function rowOf(value: unknown): ReinforcementRow {
  const { messages, tools } = requireValid(rowSchema, value);
  const { role } = last(messages);
  if (role !== "user") {
    const path = `messages.${messages.length - 1}.role`;
    throw new DataError(`${path}: expected the last message to have the role \`user\`, because the model answers it, got \`${role}\``);
  }
  return { messages, tools: tools ?? [], item: value as Readonly<Record<string, unknown>> };
}
