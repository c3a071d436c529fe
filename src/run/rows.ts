/** Schemas of the lines in the files of a run directory, for every reader. Directories of earlier versions lack some of the keys. */
import { z } from "zod";
import { readJsonLines } from "../library/dataset/jsonl.ts";
import { DataError } from "../base/errors.ts";
import { firstIssue } from "../base/util/validation.ts";

/** Schema of a line of `metrics.jsonl`. */
export const metricsRow = z.looseObject({ step: z.int(), split: z.enum(["train", "eval"]).default("train"), time: z.string().optional() });
/** Line of `metrics.jsonl`. */
export type MetricsRow = z.infer<typeof metricsRow>;

/** Schema of a line of `checkpoints.jsonl`. */
export const checkpointRow = z.looseObject({
  time: z.string().default(""),
  event: z.enum(["created", "deleted", "pinned"]),
  step: z.int(),
  id: z.string().default(""),
  run_step: z.int().nullish(),
  metrics: z.record(z.string(), z.unknown()).default({}),
});
/** Line of `checkpoints.jsonl`. */
export type RunCheckpoint = z.infer<typeof checkpointRow>;

/**
 * Schema of a line of `events.jsonl`: the keys that a summary of the run needs. All other keys are dropped to save memory: they are most of
 * a long run.
 */
export const eventRow = z.object({
  type: z.string(),
  time: z.string().optional(),
  step: z.int().nullish(),
  steps: z.unknown().optional(),
  message: z.string().nullish(),
  reason: z.string().nullish(),
  discarded_scenarios: z.array(z.int()).nullish(),
});
/** Summary of a line of `events.jsonl`. */
export type EventRow = z.infer<typeof eventRow>;

/** Schema of a complete line of `events.jsonl`: {@link eventRow} with all other keys. */
export const eventLine = z.looseObject(eventRow.shape);
/** Line of `events.jsonl` with its keys in snake_case. */
export type EventLine = z.infer<typeof eventLine>;

/** Schema of a complete line of `events.jsonl` with its number, from which a run resumes. */
export const numberedEventLine = eventLine.extend({ seq: z.int() });

/** Schema of a line of `trained/NNNNNN.jsonl`: the trainer's values per sampled turn of a trajectory. */
export const trainedRow = z.looseObject({
  scenario_index: z.int(),
  trajectory_index: z.int(),
  turns: z.array(
    z.looseObject({
      advantage: z.number().nullish(),
      advantages: z.array(z.number()).nullish(),
      logprobs: z.array(z.number().nullable()).nullish(),
    }),
  ),
});

/** Line of `trained/NNNNNN.jsonl`. */
export type TrainedLine = z.input<typeof trainedRow>;

/**
 * Parses and validates the lines of a file. An incomplete last line is skipped.
 *
 * @throws DataError `E_DATA` with file and line.
 */
export async function parseLines<T>(path: string, schema: z.ZodType<T>, signal: AbortSignal | undefined): Promise<T[]> {
  const rows: T[] = [];
  for await (const { line, value } of readJsonLines(path, { tornLine: "skip", signal }))
    rows.push(parseLine(path, line, { value, schema }));
  return rows;
}

/**
 * Validates one parsed line.
 *
 * @throws DataError `E_DATA` with file and line.
 */
export function parseLine<T>(path: string, line: number, { value, schema }: { value: unknown; schema: z.ZodType<T> }): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new DataError(`${path}:${line}: ${firstIssue(result.error)}`);
}
