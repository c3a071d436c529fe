/** Tracker that writes a TensorBoard event file. */
import { mkdir, open, stat, truncate } from "node:fs/promises";
import { join, resolve } from "node:path";
import { first, last } from "../../base/util/values.ts";
import type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "../train/tracker.ts";
import { eventBytes, type SummaryValue } from "./tensorboard-event.ts";
import { parametersOf } from "./parameters.ts";
import { tfRecord } from "./tfrecord.ts";

/** Options of {@link tensorboardTracker}. */
export interface TensorboardOptions {
  /** Directory of the event file, one per run. @default `tensorboard` in the run directory */
  readonly logDir?: string | undefined;
  /** Name of the tracker; runs with two TensorBoard trackers need two names. @default "tensorboard" */
  readonly name?: string | undefined;
}

/** State of the tracker: `seq` of the last confirmed event, and size of the file up to it in bytes. */
interface State {
  readonly seq: number;
  readonly bytes: number;
}

/**
 * Writes a TensorBoard event file: every metric as a scalar, the settings of the run as hyperparameters and as text. View it with
 * `tensorboard --logdir runs`. A resumed run continues the file.
 *
 * @param options - All optional.
 * @returns The tracker.
 * @example
 * ```ts
 * import { trainRl } from "whetstone/train";
 * import { tensorboardTracker } from "whetstone/trackers/tensorboard";
 *
 * const run = trainRl({ model, environment, steps: 20, runDir: "runs/sums", trackers: [tensorboardTracker()] });
 * await run.done; // runs/sums/tensorboard/events.out.tfevents.…
 * ```
 */
export function tensorboardTracker({ logDir, name = "tensorboard" }: TensorboardOptions = {}): Tracker {
  return {
    name,
    async open(run, state) {
      const directory = logDir === undefined ? join(run.runDir, "tensorboard") : resolve(logDir);
      await mkdir(directory, { recursive: true });
      const path = join(directory, `events.out.tfevents.${run.id}.whetstone`);
      return openFile(path, run, (state as State | null) ?? { seq: -1, bytes: 0 });
    },
  };
}

/** Opens the event file. Cuts off the bytes after the last confirmed event, which an interrupted delivery has left. */
async function openFile(path: string, run: TrackedRun, { seq, bytes }: State): Promise<TrackerSession> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  );
  // A file that lost confirmed events, for example a deleted one, is written anew.
  const isRewritten = size < bytes;
  /** Bytes of the file that count. */
  let writtenBytes = isRewritten ? 0 : bytes;
  if (size > writtenBytes) await truncate(path, writtenBytes);
  const file = await open(path, "a");
  const log = async (events: readonly TrackedEvent[]): Promise<State> => {
    const records = events.flatMap((each) => recordsOf(run, each));
    // TensorBoard expects the version of the format in the first record.
    if (writtenBytes === 0 && records.length > 0) {
      const timeMs = Date.parse(first(events).event.time);
      records.unshift(tfRecord(eventBytes({ timeMs, fileVersion: "brain.Event:2" })));
    }
    const added = Buffer.concat(records);
    await file.appendFile(added);
    writtenBytes += added.length;
    return { seq: last(events).event.seq, bytes: writtenBytes };
  };
  if (isRewritten) for await (const event of run.events(seq)) await log([event]);
  return { log, close: () => file.close() };
}

/** Returns the records of an event; none for an event without metrics that neither starts nor ends the run. */
function recordsOf({ config, name }: TrackedRun, { event, step, metrics }: TrackedEvent): Uint8Array[] {
  const timeMs = Date.parse(event.time);
  const values: SummaryValue[] = Object.entries(metrics).map(([tag, value]) => ({ type: "scalar", tag, value }));
  if (event.type === "run-start") {
    values.push({ type: "hparams-start", parameters: parametersOf(config), group: name, timeMs });
    values.push({ type: "text", tag: "config", text: `\`\`\`json\n${JSON.stringify(config, null, 2)}\n\`\`\`` });
  }
  if (event.type === "run-end") values.push({ type: "hparams-end", isFailed: false, timeMs });
  if (event.type === "run-fail") values.push({ type: "hparams-end", isFailed: true, timeMs });
  return values.length === 0 ? [] : [tfRecord(eventBytes({ timeMs, step, values }))];
}
