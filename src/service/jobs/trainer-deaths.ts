import type { JobRow } from "../store/tables.ts";

/** Counter of trainer crashes during a job. Only the current job is tracked, because jobs run one at a time. */
export class TrainerDeaths {
  #jobId = "";
  #committedSteps = 0;
  #count = 0;

  /** Counts a crash during `job`. Returns the crashes since the job last committed progress in this process. */
  record({ id, committed_steps: committedSteps }: JobRow): number {
    if (id !== this.#jobId || committedSteps !== this.#committedSteps) this.#count = 0;
    this.#jobId = id;
    this.#committedSteps = committedSteps;
    return ++this.#count;
  }
}
