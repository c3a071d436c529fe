import type { Observable } from "rxjs";
import { WhetstoneError } from "../errors.ts";
import { iterate } from "../jobs/rx.ts";
import { rxjs } from "../jobs/rxjs.ts";
import type { RunEvent } from "./events.ts";
import { resultOf, type RunLoop, type RunResult } from "./loop.ts";
import type { RunOptions } from "./options.ts";
import { RunDirectory, type RunConfig } from "./run-directory.ts";

/** What makes a run of one kind. */
export interface RunKind {
  readonly config: RunConfig;
  /** Steps of the whole run. */
  readonly count: number;
  readonly loop: (directory: RunDirectory) => Pick<RunLoop<unknown>, "run" | "stop">;
}

/**
 * A training run under way, made by `trainRl` or `trainSft`. It has begun and goes on whether anybody listens or not; what it
 * does is in its directory, and a run that was cut off, by whatever, goes on when it is started again with the same directory.
 *
 * @example
 * ```ts
 * const run = trainRl({ model, environment, steps: 20, runDir: "runs/sums" });
 * for await (const event of run) if (event.type === "step-end") console.log(event.step, event.metrics["reward/mean"]);
 * console.log(await run.done);
 * ```
 */
export class TrainingRun implements AsyncIterable<RunEvent> {
  readonly runDir: string;
  /**
   * All events from the first, those of earlier starts included, then those to come; completes or fails with the run. Subscribing
   * starts nothing and leaving stops nothing.
   */
  readonly events$: Observable<RunEvent>;
  readonly #directory: Promise<RunDirectory>;
  readonly #done: Promise<RunResult>;
  #loop: Pick<RunLoop<unknown>, "stop"> | undefined;
  #isStopping = false;
  #isObserved = false;

  constructor(kind: RunKind, options: RunOptions) {
    const { concat, defer, EMPTY, from, mergeMap } = rxjs();
    this.runDir = options.runDir;
    this.#directory = RunDirectory.open(options.runDir, kind.config);
    this.#done = this.#run(kind, options);
    this.events$ = defer(() => {
      this.#isObserved = true;
      const end = from(this.#done).pipe(mergeMap(() => EMPTY));
      return concat(from(this.#directory).pipe(mergeMap((directory) => directory.events())), end);
    });
    // A failure that nobody listens for ends the process, as any promise does; one that events or `done` tell of must not.
    this.#done.catch((error: unknown) => {
      if (!this.#isObserved) void Promise.reject(error as Error);
    });
  }

  /**
   * What the run came to.
   *
   * @throws what ended it: the signal's reason, `E_JOB_FAILED`, `E_TOO_MANY_EXCEPTIONS`, `E_PREFLIGHT`, `E_CONFIG` for a directory
   * of another run, `E_CONFLICT` for one in use …
   */
  get done(): Promise<RunResult> {
    this.#isObserved = true;
    return this.#done;
  }

  /** Finishes the step in work, starts no other, and gives what the run came to. For now instead of soon, abort the run's signal. */
  stop(): Promise<RunResult> {
    this.#isStopping = true;
    this.#loop?.stop();
    return this.done;
  }

  [Symbol.asyncIterator](): AsyncIterator<RunEvent> {
    return iterate(this.events$)[Symbol.asyncIterator]();
  }

  async #run(kind: RunKind, options: RunOptions): Promise<RunResult> {
    const { model, signal = new AbortController().signal, report = true } = options;
    const directory = await this.#directory;
    try {
      signal.throwIfAborted();
      const { startCheckpoint, steps, end, plannedSteps } = directory.state;
      // It was enough, and still is: whoever wants more asks for more steps.
      if (end !== null && kind.count <= plannedSteps) return resultOf(directory, end);
      if (startCheckpoint === null) {
        const checkpointStep = await model.step({ signal });
        await directory.record({ type: "run-start", kind: kind.config.kind, modelId: model.id, checkpointStep, steps: kind.count });
      } else {
        const checkpointStep = steps.at(-1)?.checkpointStep ?? startCheckpoint;
        await directory.record({ type: "run-resume", step: steps.length, checkpointStep, steps: kind.count });
      }
      const loop = kind.loop(directory);
      this.#loop = loop;
      if (this.#isStopping) loop.stop();
      const result = await loop.run(signal);
      await directory.record({ type: "run-end", reason: result.reason, steps: result.steps, checkpointStep: result.checkpointStep });
      return result;
    } catch (error) {
      const code = WhetstoneError.isInstance(error) ? error.code : null;
      // An abort is the caller's own doing and leaves the run as a crash would.
      if (!signal.aborted) await directory.record({ type: "run-fail", code, message: messageOf(error) });
      throw error;
    } finally {
      if (report) await this.#report(directory);
      await directory.close();
    }
  }

  async #report(directory: RunDirectory): Promise<void> {
    try {
      // Only now: the page and its charts are no part of what a script loads at its start.
      const { writeReport } = await import("../report/index.ts");
      await writeReport(directory.path);
    } catch (error) {
      await directory.record({ type: "warning", step: directory.state.steps.length, code: "report", count: 1, message: messageOf(error) });
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
