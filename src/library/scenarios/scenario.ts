/** Scenarios of agents with tools: their fields, and the comparison of tasks. */
import { createHash } from "node:crypto";
import { z } from "zod";

/** Smallest difficulty of a scenario. */
export const MIN_DIFFICULTY = 1;
/** Largest difficulty of a scenario. */
export const MAX_DIFFICULTY = 5;

/** Task for an agent with tools: a scenario of an environment. */
export interface ToolScenario {
  /** First 16 hex digits of the SHA-256 of the normalized task: equal tasks have equal ids. Environments use it as scenario id. */
  readonly id: string;
  /** Instruction to the agent. */
  readonly task: string;
  /** Estimated difficulty, an integer from 1 (one call) to 5 (many dependent calls). */
  readonly difficulty: number;
  /** Names of tools that a solution needs, as the model that wrote the task expects; empty if it named none. */
  readonly tools: readonly string[];
}

/** Schema of a line of a scenario file; unknown keys are kept. A line without `id` gets the id of its task. */
export const storedScenario = z.looseObject({
  id: z.string().min(1).optional(),
  task: z.string().refine((task) => normalizedTask(task) !== "", "expected a text that is not empty"),
  difficulty: z.int().min(MIN_DIFFICULTY).max(MAX_DIFFICULTY),
  tools: z.array(z.string()).default([]),
});

/**
 * Returns the text by which tasks are compared: Unicode NFKC, lower case, single spaces, without punctuation at the end. Punctuation inside
 * a task is kept, because `3 + 4` and `3 * 4` are different tasks.
 */
export function normalizedTask(task: string): string {
  return task
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/\s+/gu, " ")
    .replace(/[\s.!?…]+$/u, "")
    .trimStart();
}

/** Returns the id of a scenario with this task. */
export function taskId(task: string): string {
  return createHash("sha256").update(normalizedTask(task)).digest("hex").slice(0, 16);
}
