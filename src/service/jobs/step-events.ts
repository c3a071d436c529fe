/** Stored events of the optimizer steps of a job. */
import { setImmediate } from "node:timers/promises";
import type { Store } from "../store/tables.ts";

/** Events per database query. A job may have a million. */
const EVENTS_PAGE = 1000;

/** Data of a `gradient_step` event: the metrics of `Known`, and any other metrics. */
export type StepEvent<Known> = Known & Readonly<Record<string, number>>;

/** Yields the data of the job's `gradient_step` events in order. */
export async function* stepEvents<Known>(store: Store, jobId: string): AsyncGenerator<StepEvent<Known>> {
  const events = store.selectFrom("job_events").select(["seq", "data"]).where("job_id", "=", jobId).where("type", "=", "gradient_step");
  for (let lastSeq = 0; ;) {
    const rows = await events.where("seq", ">", lastSeq).orderBy("seq").limit(EVENTS_PAGE).execute();
    for (const row of rows) yield JSON.parse(row.data) as StepEvent<Known>;
    const lastRow = rows.at(-1);
    if (lastRow === undefined) return;
    lastSeq = lastRow.seq;
    // Lets requests run between two pages.
    await setImmediate();
  }
}
