/** Crashes of the trainer, from which the queue concludes whether a job is run again. */
import type { JobRow } from "../store/tables.ts";

/**
 * Counter of trainer crashes in a row, without a commit of progress in between. Only one job is tracked, because jobs run one at a time.
 */
export class TrainerDeaths {
  #jobId = "";
  #committedSteps = 0;
  #count = 0;

  /** Counts a crash during `job`. Returns the number of crashes of this process since the job last committed progress. */
  record({ id, committed_steps: committedSteps }: JobRow): number {
    if (id !== this.#jobId || committedSteps !== this.#committedSteps) this.#count = 0;
    this.#jobId = id;
    this.#committedSteps = committedSteps;
    return ++this.#count;
  }
}
