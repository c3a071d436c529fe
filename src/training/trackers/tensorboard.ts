import { mkdir, open, stat, truncate, type FileHandle } from "node:fs/promises";
import { join, resolve } from "node:path";
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

/** State of the tracker: the last confirmed event and the size of the file up to it. */
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
      return TensorboardSession.open(
        join(directory, `events.out.tfevents.${run.id}.whetstone`),
        run,
        (state as State | null) ?? { seq: -1, bytes: 0 },
      );
    },
  };
}

/** Open event file. The bytes after the last confirmed event, from an interrupted delivery, are cut off at the start. */
class TensorboardSession implements TrackerSession {
  readonly #run: TrackedRun;
  readonly #file: FileHandle;
  #bytes: number;

  private constructor(run: TrackedRun, file: FileHandle, bytes: number) {
    this.#run = run;
    this.#file = file;
    this.#bytes = bytes;
  }

  static async open(path: string, run: TrackedRun, { seq, bytes }: State): Promise<TensorboardSession> {
    const size = await stat(path).then(
      (found) => found.size,
      () => 0,
    );
    // A file that lost confirmed events, for example a deleted one, is written anew.
    const kept = size < bytes ? 0 : bytes;
    if (size > kept) await truncate(path, kept);
    const session = new TensorboardSession(run, await open(path, "a"), kept);
    if (kept < bytes) for await (const event of run.events(seq)) await session.log([event]);
    return session;
  }

  async log(events: readonly TrackedEvent[]): Promise<State> {
    const records = events.flatMap((each) => this.#recordsOf(each));
    if (this.#bytes === 0 && records.length > 0) {
      const timeMs = Date.parse((events[0] as TrackedEvent).event.time);
      records.unshift(tfRecord(eventBytes({ timeMs, fileVersion: "brain.Event:2" })));
    }
    const bytes = Buffer.concat(records);
    await this.#file.appendFile(bytes);
    this.#bytes += bytes.length;
    return { seq: (events.at(-1) as TrackedEvent).event.seq, bytes: this.#bytes };
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  #recordsOf({ event, step, metrics }: TrackedEvent): Uint8Array[] {
    const timeMs = Date.parse(event.time);
    const values: SummaryValue[] = Object.entries(metrics).map(([tag, value]) => ({ type: "scalar", tag, value }));
    if (event.type === "run-start") {
      const { config, name } = this.#run;
      values.push({ type: "hparams-start", parameters: parametersOf(config), group: name, timeMs });
      values.push({ type: "text", tag: "config", text: `\`\`\`json\n${JSON.stringify(config, null, 2)}\n\`\`\`` });
    }
    if (event.type === "run-end") values.push({ type: "hparams-end", isFailed: false, timeMs });
    if (event.type === "run-fail") values.push({ type: "hparams-end", isFailed: true, timeMs });
    return values.length === 0 ? [] : [tfRecord(eventBytes({ timeMs, step, values }))];
  }
}
