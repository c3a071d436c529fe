/** Text metrics of graders: of short texts on the serving thread, of long ones on a work thread. */
import type { Similarity } from "../../graders/grade.ts";
import { checkLengths, textSimilarity } from "../../graders/metrics/text-similarity.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { GraderTasks } from "./tasks.ts";

/** Max sum of the lengths of two texts that are compared on the serving thread. */
const MAX_SMALL_SUM = 16_384;
/** Max product of the lengths of such texts; at both limits, a comparison takes a few milliseconds. */
const MAX_SMALL_PRODUCT = 2 ** 20;

/** Computation of text metrics on the thread that fits the texts. */
export class GraderWork {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Computes a metric of a text compared with a reference; see `textSimilarity`. */
  readonly similarity: Similarity = async (metric, [text, reference], signal) => {
    const isSmall = text.length + reference.length <= MAX_SMALL_SUM && text.length * reference.length <= MAX_SMALL_PRODUCT;
    if (isSmall) return textSimilarity(metric, text, reference);
    // Checked here, because the error of a work thread would not be a GraderError.
    checkLengths(metric, text, reference);
    const run = (thread: TaskThread<GraderTasks>) => thread.run("textSimilarity", { metric, text, reference }, { signal });
    return this.#pool.use(run, signal);
  };
}
