import type { JobRow } from "../store/tables.ts";

/** Counts the deaths of the trainer during a job. Only the job that runs is tracked: jobs run one after another. */
export class TrainerDeaths {
  #jobId = "";
  #committedSteps = 0;
  #count = 0;

  /** Counts a death during `job`, and returns the deaths since the job last committed progress in this process. */
  note({ id, committed_steps: committedSteps }: JobRow): number {
    if (id !== this.#jobId || committedSteps !== this.#committedSteps) this.#count = 0;
    this.#jobId = id;
    this.#committedSteps = committedSteps;
    return ++this.#count;
  }
}
