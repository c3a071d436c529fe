/** Text metrics of graders: of short texts on the serving thread, of long ones on a work thread. */
import type { Similarity } from "../../graders/grade.ts";
import { checkLengths, textSimilarity } from "../../graders/metrics/text-similarity.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { GraderTasks } from "./tasks.ts";

/** Max length of both texts together, and max product of their lengths, on the serving thread: a few milliseconds of computation. */
const [SMALL_LENGTH, SMALL_PRODUCT] = [16_384, 2 ** 20];

export class GraderWork {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Computes a metric; see `textSimilarity`. */
  readonly similarity: Similarity = async (metric, [text, reference], signal) => {
    if (text.length + reference.length <= SMALL_LENGTH && text.length * reference.length <= SMALL_PRODUCT)
      return textSimilarity(metric, text, reference);
    checkLengths(metric, text, reference);
    const run = (thread: TaskThread<GraderTasks>) => thread.run("textSimilarity", { metric, text, reference }, { signal });
    return this.#pool.use(run, signal);
  };
}
