import PQueue from "p-queue";
import { ArgumentError, isAbort } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";
import { Trajectory, TrajectoryGroup } from "../trajectory/index.ts";
import { linkAbort, type LinkedAbort } from "../util/abort.ts";
import { backoffMs } from "../util/backoff.ts";
import { delay } from "../util/delay.ts";
import { TooManyExceptionsError } from "./errors.ts";
import { checkGatherOptions, type GatherOptions, type Rollout } from "./options.ts";
import { randomSeed, rolloutSeed } from "./seed.ts";

type Outcome = { readonly trajectory: Trajectory } | { readonly exception: RolloutException };

/** Options of {@link runRollouts}. */
export interface RunOptions extends GatherOptions {
  /** Called as a group ends; `index` is its scenario's. */
  readonly onGroups: (groups: readonly TrajectoryGroup[], index: number) => void;
}

/**
 * Runs all rollouts of all scenarios, at most `concurrency` at a time, in scenario order. Hands each group over as it ends.
 *
 * Always waits for running code: when it returns or throws, no rollout of it is alive any more.
 */
export async function runRollouts<S>(scenarios: Iterable<S>, rollout: Rollout<S>, options: RunOptions): Promise<void> {
  checkGatherOptions(options);
  options.signal?.throwIfAborted();
  const run = new Run([...scenarios], rollout, options);
  await run.all();
}

class Run<S> {
  readonly #scenarios: readonly S[];
  readonly #rollout: Rollout<S>;
  readonly #options: RunOptions;
  readonly #groupSize: number;
  readonly #seed: number;
  readonly #link: LinkedAbort;
  readonly #outcomes: Outcome[][];
  readonly #exceptions: RolloutException[] = [];
  #completed = 0;
  #rewardSum = 0;

  constructor(scenarios: readonly S[], rollout: Rollout<S>, options: RunOptions) {
    this.#scenarios = scenarios;
    this.#rollout = rollout;
    this.#options = options;
    this.#groupSize = options.groupSize ?? 8;
    this.#seed = options.seed ?? randomSeed();
    this.#link = linkAbort(options.signal);
    this.#outcomes = scenarios.map(() => []);
  }

  async all(): Promise<void> {
    const queue = new PQueue({ concurrency: this.#options.concurrency ?? 32 });
    const tasks: Promise<void>[] = [];
    for (let group = 0; group < this.#scenarios.length; group++) {
      for (let index = 0; index < this.#groupSize; index++) tasks.push(queue.add(() => this.#one(group, index)));
    }
    try {
      await Promise.all(tasks);
      // Waiting tasks are not cleared but run into this signal at once: a cleared task's promise would never settle.
      this.#link.signal.throwIfAborted();
    } finally {
      this.#link.dispose();
    }
  }

  /** Never rejects: what ends the whole run aborts the signal. */
  async #one(group: number, index: number): Promise<void> {
    if (this.#link.signal.aborted) return;
    try {
      const outcome = await this.#attempts(group, index);
      if (this.#link.signal.aborted) return;
      await this.#record(group, index, outcome);
    } catch (error) {
      if (!this.#link.signal.aborted) this.#link.abort(error);
    }
  }

  async #attempts(group: number, index: number): Promise<Outcome> {
    const { retries = 0, timeoutMs } = this.#options;
    for (let attempt = 0; ; attempt++) {
      const link = linkAbort(this.#link.signal, { timeoutMs, label: `rollout ${index} of group ${group}` });
      try {
        const seed = rolloutSeed(this.#seed, group, index);
        const trajectory = await this.#rollout(this.#scenarios[group] as S, { signal: link.signal, seed, index, group, attempt });
        // A result that comes after the deadline was not made within it.
        link.signal.throwIfAborted();
        return { trajectory: checked(trajectory) };
      } catch (error) {
        this.#link.signal.throwIfAborted();
        if (error instanceof UnfinishedError) throw new ArgumentError(error.message);
        const reason: unknown = link.signal.aborted && isAbort(error) ? link.signal.reason : error;
        if (attempt >= retries) return { exception: toException(reason) };
      } finally {
        link.dispose();
      }
      await delay(backoffMs(attempt), { signal: this.#link.signal });
    }
  }

  async #record(group: number, index: number, outcome: Outcome): Promise<void> {
    const outcomes = this.#outcomes[group] as Outcome[];
    outcomes[index] = outcome;
    this.#completed++;
    if ("exception" in outcome) this.#exceptions.push(outcome.exception);
    else this.#rewardSum += outcome.trajectory.reward;
    this.#checkBudget();
    const total = this.#scenarios.length * this.#groupSize;
    const exceptions = this.#exceptions.length;
    this.#options.onProgress?.({
      completed: this.#completed,
      total,
      exceptions,
      rewardMean: this.#rewardSum / (this.#completed - exceptions),
    });
    const isGroupOver = outcomes.filter((each) => each !== undefined).length === this.#groupSize;
    if (isGroupOver) await this.#handOver(group, outcomes);
  }

  #checkBudget(): void {
    const { maxExceptions = 0 } = this.#options;
    const total = this.#scenarios.length * this.#groupSize;
    const allowed = maxExceptions < 1 ? Math.floor(maxExceptions * total) : maxExceptions;
    const exceptions = this.#exceptions;
    const last = exceptions.at(-1);
    if (exceptions.length <= allowed || last === undefined) return;
    throw new TooManyExceptionsError(
      `${exceptions.length} of ${total} rollouts failed, ${allowed} are allowed (\`maxExceptions\`); the last with ${last.type}: ${last.message}`,
      { exceptions: [...exceptions], cause: causes.get(last) },
    );
  }

  async #handOver(index: number, outcomes: readonly Outcome[]): Promise<void> {
    const group = new TrajectoryGroup({
      trajectories: outcomes.flatMap((outcome) => ("trajectory" in outcome ? [outcome.trajectory] : [])),
      exceptions: outcomes.flatMap((outcome) => ("exception" in outcome ? [outcome.exception] : [])),
      metadata: { scenario_index: index, seed: this.#seed },
    });
    const after = this.#options.afterEach === undefined ? group : await this.#options.afterEach(group, index);
    if (this.#link.signal.aborted) return;
    this.#options.onGroups(after === undefined ? [group] : after === null ? [] : after instanceof TrajectoryGroup ? [after] : after, index);
  }
}

/** The thrown value behind a recorded exception, which is plain data. */
const causes = new WeakMap<RolloutException, unknown>();

function toException(error: unknown): RolloutException {
  const exception: RolloutException =
    error instanceof Error
      ? { type: error.name, message: error.message, traceback: error.stack ?? "" }
      : { type: typeof error, message: String(error), traceback: "" };
  causes.set(exception, error);
  return exception;
}

/** A mistake in the program, not a failure of one rollout: ends the run whatever the budget. */
class UnfinishedError extends Error {}

function checked(value: unknown): Trajectory {
  if (value instanceof Trajectory) return value;
  throw new UnfinishedError("Expected the rollout to return a finished trajectory: `return t.finish({ reward })`");
}
