import type PQueue from "p-queue";
import type { RolloutException } from "../schema/index.ts";
import { TrajectoryGroup } from "../trajectory/index.ts";
import { linkAbort, type LinkedAbort } from "../util/abort.ts";
import { deferred } from "../util/deferred.ts";
import { Attempts, type Outcome } from "./attempts.ts";
import { checkGatherOptions } from "./check-options.ts";
import { TooManyExceptionsError } from "./errors.ts";
import type { RolloutEvent } from "./events.ts";
import { causeOf } from "./failure.ts";
import type { ConcurrencyByKey, GatherOptions, Rollout } from "./options.ts";
import { Pace } from "./pace.ts";
import { randomSeed } from "./seed.ts";

/** Options of {@link runRollouts}. */
export interface RunOptions<S> extends GatherOptions<S> {
  /**
   * Called as a group ends; `position` is its scenario's place among the scenarios. Until it resolves, the group's last
   * rollout counts as running: a slow taker slows the run.
   */
  readonly onGroups: (groups: readonly TrajectoryGroup[], position: number) => void | Promise<void>;
}

/**
 * Runs all rollouts of all scenarios, at most `concurrency` at a time, in scenario order. Hands each group over as it ends.
 *
 * Always waits for running code: when it returns or throws, no rollout of it is alive any more.
 */
export async function runRollouts<S>(scenarios: Iterable<S>, rollout: Rollout<S>, options: RunOptions<S>): Promise<void> {
  const list = [...scenarios];
  checkGatherOptions(options, list.length);
  options.signal?.throwIfAborted();
  // Loaded when it is first needed: importing the package stays quick.
  const { default: Queue } = await import("p-queue");
  await new Run(list, rollout, options, Queue).all();
}

/** A group whose rollouts run. */
interface OpenGroup {
  readonly outcomes: Outcome[];
  left: number;
}

class Run<S> {
  readonly #scenarios: readonly S[];
  readonly #options: RunOptions<S>;
  readonly #groupSize: number;
  readonly #seed: number;
  readonly #link: LinkedAbort;
  readonly #Queue: typeof PQueue;
  readonly #queue: PQueue;
  readonly #pace: Pace;
  readonly #attempts: Attempts<S>;
  /** By position, from the first rollout's start to the handing over: what is done takes no memory here. */
  readonly #open = new Map<number, OpenGroup>();
  readonly #exceptions: RolloutException[] = [];
  #completed = 0;
  #rewardSum = 0;

  constructor(scenarios: readonly S[], rollout: Rollout<S>, options: RunOptions<S>, Queue: typeof PQueue) {
    this.#scenarios = scenarios;
    this.#options = options;
    this.#groupSize = options.groupSize ?? 8;
    this.#seed = options.seed ?? randomSeed();
    this.#link = linkAbort(options.signal);
    this.#Queue = Queue;
    this.#queue = new Queue({ concurrency: options.concurrency ?? 32 });
    const onEvent = (event: RolloutEvent) => this.#tell(event);
    this.#pace = new Pace(this.#queue, onEvent);
    const { signal } = this.#link;
    this.#attempts = new Attempts({ rollout, options, seed: this.#seed, pace: this.#pace, signal, onEvent });
    signal.addEventListener("abort", () => this.#pace.dispose(), { once: true });
  }

  async all(): Promise<void> {
    try {
      await this.#playAll();
      // Waiting tasks are not cleared but run into this signal at once: a cleared task's promise would never settle.
      this.#link.signal.throwIfAborted();
    } finally {
      this.#pace.dispose();
      this.#link.dispose();
    }
  }

  /**
   * Puts the rollouts into the queue, in order. Where nothing but the queue holds them back, one enters as one ends: a run of a million
   * must not start with a million waiting tasks.
   */
  async #playAll(): Promise<void> {
    const { concurrencyBy, concurrency = 32 } = this.#options;
    const total = this.#scenarios.length * this.#groupSize;
    const enqueue =
      concurrencyBy === undefined ? (_: number, task: () => Promise<void>) => this.#queue.add(task) : this.#lanes(concurrencyBy);
    const end = deferred<void>();
    let next = 0;
    let left = total;
    const feed = () => {
      const position = Math.floor(next / this.#groupSize);
      const index = next++ % this.#groupSize;
      void enqueue(position, () => this.#one(position, index)).then(ended, (error: unknown) => end.reject(error));
    };
    const ended = () => {
      if (--left === 0) end.resolve();
      else if (next < total) feed();
    };
    if (total === 0) end.resolve();
    // As many wait as run, so that a place that becomes free is taken at once.
    const first = concurrencyBy === undefined ? Math.min(total, 2 * concurrency) : total;
    while (next < first) feed();
    await end.promise;
  }

  /** Through its key's own queue a rollout comes into the queue of all. */
  #lanes(concurrencyBy: ConcurrencyByKey<S>): (position: number, task: () => Promise<void>) => Promise<void> {
    const lanes = new Map<string, PQueue>();
    return (position, task) => {
      const key = concurrencyBy.key(this.#scenarios[position] as S);
      const lane = lanes.get(key) ?? new this.#Queue({ concurrency: concurrencyBy.limit });
      lanes.set(key, lane);
      return lane.add(() => this.#queue.add(task));
    };
  }

  /** Never rejects: what ends the whole run aborts the signal. */
  async #one(position: number, index: number): Promise<void> {
    const { signal } = this.#link;
    if (signal.aborted) return;
    const open = this.#begun(position);
    if (open === undefined) return;
    try {
      const group = this.#indexOf(position);
      const outcome = await this.#attempts.play(this.#scenarios[position] as S, group, index);
      if (signal.aborted) return;
      open.outcomes[index] = outcome;
      open.left--;
      this.#record(group, index, outcome);
      if (open.left === 0) await this.#handOver(position, open.outcomes);
    } catch (error) {
      if (!signal.aborted) this.#link.abort(error);
    }
  }

  /** The group that a rollout belongs to; undefined when it would be the first of its group after a stop. */
  #begun(position: number): OpenGroup | undefined {
    let open = this.#open.get(position);
    if (open === undefined && !this.#options.stopSignal?.aborted) {
      open = { outcomes: [], left: this.#groupSize };
      this.#open.set(position, open);
    }
    return open;
  }

  #indexOf(position: number): number {
    return this.#options.indices?.[position] ?? position;
  }

  #record(group: number, index: number, { attempt, trajectory, exception }: Outcome): void {
    this.#completed++;
    if (exception !== undefined) this.#exceptions.push(exception);
    else this.#rewardSum += trajectory?.reward ?? NaN;
    this.#tell({ type: "rollout-end", group, index, attempt, reward: trajectory?.reward ?? null, exception: exception ?? null });
    this.#checkBudget();
    const exceptions = this.#exceptions.length;
    this.#options.onProgress?.({
      completed: this.#completed,
      total: this.#scenarios.length * this.#groupSize,
      exceptions,
      rewardMean: this.#rewardSum / (this.#completed - exceptions),
    });
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
      { exceptions: [...exceptions], cause: causeOf(last) },
    );
  }

  async #handOver(position: number, outcomes: readonly Outcome[]): Promise<void> {
    const index = this.#indexOf(position);
    this.#open.delete(position);
    const group = new TrajectoryGroup({
      trajectories: outcomes.flatMap(({ trajectory }) => trajectory ?? []),
      exceptions: outcomes.flatMap(({ exception }) => exception ?? []),
      metadata: { scenario_index: index, seed: this.#seed },
    });
    this.#tellGroup(index, group);
    const after = this.#options.afterEach === undefined ? group : await this.#options.afterEach(group, index);
    if (this.#link.signal.aborted) return;
    const groups = after === undefined ? [group] : after === null ? [] : after instanceof TrajectoryGroup ? [after] : after;
    await this.#options.onGroups(groups, position);
  }

  #tellGroup(index: number, { rewards, exceptions }: TrajectoryGroup): void {
    const rewardMean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    this.#tell({ type: "group-end", group: index, trajectories: rewards.length, exceptions: exceptions.length, rewardMean });
  }

  #tell(event: RolloutEvent): void {
    this.#options.onEvent?.(event);
  }
}
