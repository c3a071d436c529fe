/** Text metrics of graders: of short texts on the serving thread, of long ones on a work thread. */
import type { Similarity } from "../../graders/grade.ts";
import { checkLengths, textSimilarity } from "../../graders/metrics/text-similarity.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { GraderTasks } from "./tasks.ts";

/** Max sum and max product of the lengths of texts that are compared on the serving thread, which takes a few milliseconds. */
const [MAX_SMALL_SUM, MAX_SMALL_PRODUCT] = [16_384, 2 ** 20];

/** Computation of text metrics on the thread that fits the texts. */
export class GraderWork {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Computes a metric; see `textSimilarity`. */
  readonly similarity: Similarity = async (metric, [text, reference], signal) => {
    if (text.length + reference.length <= MAX_SMALL_SUM && text.length * reference.length <= MAX_SMALL_PRODUCT)
      return textSimilarity(metric, text, reference);
    // Checked here, because the error of a work thread would not be a GraderError.
    checkLengths(metric, text, reference);
    const run = (thread: TaskThread<GraderTasks>) => thread.run("textSimilarity", { metric, text, reference }, { signal });
    return this.#pool.use(run, signal);
  };
}
