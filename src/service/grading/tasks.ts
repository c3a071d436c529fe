/** Tasks of a work thread for graders. */
import type { TextMetric } from "../../base/schema/index.ts";
import { textSimilarity } from "../../graders/metrics/text-similarity.ts";

/** Texts to compare. */
interface Comparison {
  readonly metric: TextMetric;
  readonly text: string;
  readonly reference: string;
}

/** Tasks of graders; `GraderWork` calls them. */
export const GRADER_TASKS = {
  textSimilarity: ({ metric, text, reference }: Comparison): number => textSimilarity(metric, text, reference),
} as const;

/** Type of {@link GRADER_TASKS}. */
export type GraderTasks = typeof GRADER_TASKS;
