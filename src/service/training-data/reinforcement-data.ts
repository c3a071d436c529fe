/** Reading of the data of reinforcement jobs: rows with a prompt and the fields that a grader compares with. */
import { z } from "zod";
import { DataError, WhetstoneError, type ErrorCode } from "../../base/errors.ts";
import { requestMessage, tool, type RequestMessage, type Tool } from "../../base/schema/index.ts";
import { requireValid } from "../../base/util/validation.ts";
import { last } from "../../base/util/values.ts";
import { TRAJECTORY_LIMITS } from "../http/request-limits.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { readDataLines, useLines, type LineFormat, type LineSource } from "./data-lines.ts";

/** Format of the lines; `num_rows` is a member of the metadata. */
const FORMAT: LineFormat = { file: "train.jsonl", countKey: "num_rows", limits: TRAJECTORY_LIMITS };

/** Codes of errors that a row causes. */
export const DATA_ERRORS: readonly ErrorCode[] = ["E_ARGUMENT", "E_DATA", "E_UNSUPPORTED"];

/** Members of a row with a meaning; all others are fields for the grader. */
const rowSchema = z.looseObject({
  messages: z.array(requestMessage).min(1),
  tools: z.array(tool).nullish(),
});

/** Row of the data. */
export interface ReinforcementRow {
  readonly messages: readonly RequestMessage[];
  readonly tools: readonly Tool[];
  /** All fields of the row, the `item` of a grader's templates. */
  readonly item: Readonly<Record<string, unknown>>;
}

/** Options of {@link readReinforcementRows}. */
export interface ReinforcementReading {
  readonly files: Pick<StoredFiles, "useBlobs">;
  /** Request field that names the file. */
  readonly param: string;
  /** Checks a row. Errors get the number of its line. @default no check */
  readonly check?: ((row: ReinforcementRow) => void | Promise<void>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads and validates every row of a file.
 *
 * @throws DataError `E_DATA` naming file and line of a row that cannot be trained, and for a file without rows.
 */
export async function readReinforcementRows(artifact: StoredArtifact, options: ReinforcementReading): Promise<ReinforcementRow[]> {
  return useLines(artifact, FORMAT, options, (source) => readRows(source, options));
}

/** Reads and checks the rows of a verified file. */
async function readRows(source: LineSource, { param, check, signal }: ReinforcementReading): Promise<ReinforcementRow[]> {
  const { file, lines } = readDataLines(source, FORMAT, (value, where) => ({ row: rowOf(value), where }), signal);
  const rows: ReinforcementRow[] = [];
  for await (const { row, where } of lines) {
    try {
      await check?.(row);
    } catch (cause) {
      // A failure of the service, such as a work thread that died, is not an error of the data.
      if (!WhetstoneError.isInstance(cause) || !DATA_ERRORS.includes(cause.code)) throw cause;
      throw new DataError(`${where}: ${cause.message}`, { cause, param });
    }
    rows.push(row);
  }
  if (rows.length === 0) throw new DataError(`${file}: nothing to train: the file is empty`, { param });
  return rows;
}

/** Converts a line to a row. @throws DataError `E_DATA` if the last message is not from the user. */
function rowOf(value: unknown): ReinforcementRow {
  const { messages, tools } = requireValid(rowSchema, value);
  const { role } = last(messages);
  if (role !== "user") {
    const path = `messages.${messages.length - 1}.role`;
    throw new DataError(`${path}: expected the last message to have the role \`user\`, because the model answers it, got \`${role}\``);
  }
  return { messages, tools: tools ?? [], item: value as Readonly<Record<string, unknown>> };
}
