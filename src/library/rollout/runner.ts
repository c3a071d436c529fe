/**
 * Runner of many rollouts: starts them in scenario order as the concurrency allows, collects their outcomes into groups, and passes on each
 * group when its last rollout has ended. A {@link Player} plays the single rollouts.
 */
import type PQueue from "p-queue";
import type { RolloutException } from "../../base/schema/index.ts";
import { TrajectoryGroup, type TrajectoryGroupInit } from "../../base/trajectory/index.ts";
import { completionTokens } from "../../base/trajectory/statistics.ts";
import { linkAbort, type LinkedAbort } from "../../base/util/abort.ts";
import { deferred } from "../../base/util/deferred.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { Attempts, type Outcome, type Player, type PlayerInit } from "./attempts.ts";
import { checkGatherOptions } from "./check-options.ts";
import { TooManyExceptionsError } from "./errors.ts";
import type { RolloutEvent } from "./events.ts";
import { causeOf, describeException } from "./failure.ts";
import type { AfterEachResult, ConcurrencyByKey, GatherOptions, GatherProgress, Rollout } from "./options.ts";
import { RolloutDisplay } from "./progress.ts";
import { RateLimiter } from "./rate-limiter.ts";
import { randomSeed } from "./seed.ts";

/** Options of {@link runRollouts}. */
export interface RolloutsOptions<S> extends GatherOptions<S> {
  /** Title of the progress display. @default "rollouts" */
  readonly title?: string | undefined;
  /** Creates the player of the rollouts. @default plays them in this process */
  readonly createPlayer?: ((init: PlayerInit) => Player<S>) | undefined;
  /**
   * Called when a group ends; `position` is the position of its scenario in the list. The group's last rollout occupies its slot until the
   * result resolves, so a slow consumer slows the run.
   */
  readonly onGroups: (groups: readonly TrajectoryGroup[], position: number) => void | Promise<void>;
}

/**
 * Runs all rollouts of all scenarios, at most `concurrency` at a time, in scenario order, and passes on each group when it ends.
 *
 * Waits for all running rollouts before it returns or throws.
 */
export async function runRollouts<S>(scenarios: Iterable<S>, rollout: Rollout<S>, options: RolloutsOptions<S>): Promise<void> {
  const list = [...scenarios];
  checkGatherOptions(options, list.length);
  options.signal?.throwIfAborted();
  // Loaded on first use, so that importing the package stays fast.
  const { default: Queue } = await import("p-queue");
  await new Run(list, rollout, options, Queue).run();
}

/** Group with unfinished rollouts. */
interface OpenGroup {
  /** Outcomes by the index of the rollout; sparse until the group is complete. */
  readonly outcomes: Outcome[];
  /** Number of rollouts without an outcome, not started or running. */
  unfinished: number;
}

/** State of a {@link runRollouts} call. `position` is the index of a scenario in the list, `index` the index of a rollout in its group. */
class Run<S> {
  readonly #scenarios: readonly S[];
  readonly #rollout: Rollout<S>;
  readonly #options: RolloutsOptions<S>;
  readonly #groupSize: number;
  readonly #seed: number;
  /** Signal of the run: aborts with the caller's signal, and at an error that ends the run. */
  readonly #link: LinkedAbort;
  readonly #Queue: typeof PQueue;
  readonly #queue: PQueue;
  readonly #rateLimiter: RateLimiter;
  readonly #player: Player<S>;
  readonly #display: RolloutDisplay;
  /**
   * Unfinished groups by position, from the start of the first rollout until the group is passed on; finished groups use no memory here.
   */
  readonly #openGroups = new Map<number, OpenGroup>();
  /** Failures so far, including failures of group rewards. */
  readonly #exceptions: RolloutException[] = [];
  /** Number of rollouts in progress. */
  #running = 0;
  /** Number of rollouts that have ended, including failed ones. */
  #completed = 0;
  /** Number of sampled tokens in the successful rollouts so far. */
  #completionTokens = 0;
  /** Sum of the rewards of the successful rollouts so far. */
  #rewardSum = 0;

  constructor(scenarios: readonly S[], rollout: Rollout<S>, options: RolloutsOptions<S>, Queue: typeof PQueue) {
    this.#scenarios = scenarios;
    this.#rollout = rollout;
    this.#options = options;
    this.#groupSize = options.groupSize ?? 8;
    this.#seed = options.seed ?? randomSeed();
    this.#link = linkAbort(options.signal);
    this.#Queue = Queue;
    this.#queue = new Queue({ concurrency: options.concurrency ?? 32 });
    const onEvent = (event: RolloutEvent) => this.#report(event);
    this.#rateLimiter = new RateLimiter(this.#queue, onEvent);
    const { signal } = this.#link;
    const init = { seed: this.#seed, groupSize: this.#groupSize, signal, onEvent };
    this.#player = options.createPlayer?.(init) ?? new Attempts({ ...init, rollout, options, rateLimiter: this.#rateLimiter });
    signal.addEventListener("abort", () => this.#rateLimiter.dispose(), { once: true });
    this.#display = new RolloutDisplay(options.title ?? "rollouts", this.#total, options.progress);
  }

  /** Number of rollouts of the whole run. */
  get #total(): number {
    return this.#scenarios.length * this.#groupSize;
  }

  /** Plays all rollouts; may be called once. */
  async run(): Promise<void> {
    try {
      await this.#playAll();
      // Queued tasks are not cleared: they run and return at once because of this signal. The promise of a cleared task would never settle.
      this.#link.signal.throwIfAborted();
      this.#display.end();
    } catch (error) {
      this.#display.end(this.#options.signal?.aborted ? "stopped" : "ended by an error");
      throw error;
    } finally {
      this.#rateLimiter.dispose();
      this.#link.dispose();
    }
  }

  /**
   * Adds the rollouts to the queue in order. Without per-key limits, a rollout is added when another ends, so that a run of a million
   * rollouts does not start with a million queued tasks.
   */
  async #playAll(): Promise<void> {
    const { concurrencyBy, concurrency = 32 } = this.#options;
    const total = this.#total;
    const mainQueue = (_: number, task: () => Promise<void>) => this.#queue.add(task);
    const enqueue = concurrencyBy === undefined ? mainQueue : this.#keyQueues(concurrencyBy);
    const allEnded = deferred<void>();
    /** Number of rollouts that were added to the queue. */
    let added = 0;
    /** Number of rollouts that have not ended. */
    let unfinished = total;
    const addNext = () => {
      const position = Math.floor(added / this.#groupSize);
      const index = added % this.#groupSize;
      added++;
      void enqueue(position, () => this.#playOne(position, index)).then(onEnd, (error: unknown) => allEnded.reject(error));
    };
    const onEnd = () => {
      unfinished--;
      if (unfinished === 0) allEnded.resolve();
      else if (added < total) addNext();
    };
    if (total === 0) allEnded.resolve();
    // Besides the running tasks, as many are queued, so that a free slot is filled at once. Per-key limits need all tasks: the next one of
    // the list may not be allowed to start.
    const initialCount = concurrencyBy === undefined ? Math.min(total, 2 * concurrency) : total;
    while (added < initialCount) addNext();
    await allEnded.promise;
  }

  /** Returns a function that adds a rollout to the queue of its key, from which it enters the main queue. */
  #keyQueues(concurrencyBy: ConcurrencyByKey<S>): (position: number, task: () => Promise<void>) => Promise<void> {
    // An error of `key` must end the run before a rollout starts.
    const keys = this.#scenarios.map((scenario) => concurrencyBy.key(scenario));
    const queues = new Map<string, PQueue>();
    return (position, task) => {
      const queue = getOrInsert(queues, keys[position] as string, () => new this.#Queue({ concurrency: concurrencyBy.limit }));
      return queue.add(() => this.#queue.add(task));
    };
  }

  /** Runs one rollout. Never rejects: an error that ends the whole run aborts the signal. */
  async #playOne(position: number, index: number): Promise<void> {
    const { signal } = this.#link;
    if (signal.aborted) return;
    const openGroup = this.#groupFor(position);
    if (openGroup === undefined) return;
    try {
      const group = this.#indexOf(position);
      this.#running++;
      this.#display.update(this.#progress());
      const outcome = await this.#player.play(this.#scenarios[position] as S, group, index).finally(() => this.#running--);
      if (signal.aborted) return;
      openGroup.outcomes[index] = outcome;
      openGroup.unfinished--;
      this.#record(group, index, outcome);
      if (openGroup.unfinished === 0) await this.#passOn(position, openGroup.outcomes);
    } catch (error) {
      if (!signal.aborted) this.#link.abort(error);
    }
  }

  /** Returns the group of a rollout that starts; undefined if it would be the first of its group after a stop. */
  #groupFor(position: number): OpenGroup | undefined {
    const started = this.#openGroups.get(position);
    if (started !== undefined || this.#options.stopSignal?.aborted) return started;
    const group: OpenGroup = { outcomes: [], unfinished: this.#groupSize };
    this.#openGroups.set(position, group);
    return group;
  }

  /** Returns the index of a scenario for seeds and records; see the option `indices`. */
  #indexOf(position: number): number {
    return this.#options.indices?.[position] ?? position;
  }

  /** Counts and reports a finished rollout. @throws TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS` */
  #record(group: number, index: number, { attempt, trajectory, exception, replaced }: Outcome): void {
    this.#completed++;
    replaced.forEach((each) => this.#display.warn(each));
    if (exception !== undefined) {
      this.#exceptions.push(exception);
      this.#display.warn(exception);
    } else {
      this.#rewardSum += trajectory.reward;
      this.#completionTokens += trajectory.allChoices.reduce((sum, choice) => sum + completionTokens(choice), 0);
    }
    this.#report({ type: "rollout-end", group, index, attempt, reward: trajectory?.reward ?? null, exception: exception ?? null });
    this.#checkBudget();
    const progress = this.#progress();
    this.#display.update(progress);
    this.#options.onProgress?.(progress);
  }

  /** Returns the counts so far. */
  #progress(): GatherProgress {
    const exceptions = this.#exceptions.length;
    return {
      completed: this.#completed,
      total: this.#total,
      running: this.#running,
      exceptions,
      rewardMean: this.#rewardSum / (this.#completed - exceptions),
      completionTokens: this.#completionTokens,
    };
  }

  /** @throws TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS` for more failures than `maxExceptions` allows. */
  #checkBudget(): void {
    const { maxExceptions = 0 } = this.#options;
    const total = this.#total;
    const allowed = maxExceptions < 1 ? Math.floor(maxExceptions * total) : maxExceptions;
    const exceptions = this.#exceptions;
    const lastException = exceptions.at(-1);
    if (exceptions.length <= allowed || lastException === undefined) return;
    const message = `${exceptions.length} of ${total} rollouts failed, ${allowed} are allowed (\`maxExceptions\`); the last with ${describeException(lastException)}`;
    throw new TooManyExceptionsError(message, { exceptions: [...exceptions], cause: causeOf(lastException) });
  }

  /** Scores a complete group, reports it, and passes on the groups that `afterEach` makes of it. */
  async #passOn(position: number, outcomes: readonly Outcome[]): Promise<void> {
    const index = this.#indexOf(position);
    this.#openGroups.delete(position);
    const unscored = new TrajectoryGroup({
      trajectories: outcomes.flatMap(({ trajectory }) => trajectory ?? []),
      exceptions: outcomes.flatMap(({ exception }) => exception ?? []),
      metadata: { scenario_index: index, seed: this.#seed },
      ...replacementRecords(outcomes),
    });
    const group = await this.#scored(position, unscored);
    if (this.#link.signal.aborted) return;
    this.#reportGroup(index, group);
    const result = await this.#options.afterEach?.(group, index);
    if (this.#link.signal.aborted) return;
    await this.#options.onGroups(groupsAfterEach(group, result), position);
  }

  /** Applies the group rewards. Rollouts on which a group reward fails count as failures of the run. */
  async #scored(position: number, group: TrajectoryGroup): Promise<TrajectoryGroup> {
    const { scoreGroup } = this.#rollout;
    if (scoreGroup === undefined) return group;
    const scored = await scoreGroup(this.#scenarios[position] as S, group, this.#link.signal);
    // `scoreGroup` appends its failures to the exceptions of the group.
    const failures = scored.exceptions.slice(group.exceptions.length);
    this.#exceptions.push(...failures);
    failures.forEach((exception) => this.#display.warn(exception));
    const sum = ({ rewards }: TrajectoryGroup) => rewards.reduce((total, reward) => total + reward, 0);
    this.#rewardSum += sum(scored) - sum(group);
    this.#checkBudget();
    return scored;
  }

  /** Reports a scored group, before `afterEach`. */
  #reportGroup(index: number, { rewards, exceptions }: TrajectoryGroup): void {
    const rewardMean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    this.#report({ type: "group-end", group: index, trajectories: rewards.length, exceptions: exceptions.length, rewardMean });
  }

  #report(event: RolloutEvent): void {
    this.#options.onEvent?.(event);
  }
}

/** Returns the groups that `afterEach` made of a group. */
function groupsAfterEach(group: TrajectoryGroup, result: AfterEachResult): readonly TrajectoryGroup[] {
  if (result === undefined) return [group];
  if (result === null) return [];
  return TrajectoryGroup.isInstance(result) ? [result] : result;
}

/** Returns the metric and the log lines of a group with replaced rollouts; empty without. */
function replacementRecords(outcomes: readonly Outcome[]): Pick<TrajectoryGroupInit, "metrics" | "logs"> {
  const logs = outcomes.flatMap(({ replaced }, index) =>
    replaced.map(({ type, message }) => `Rollout ${index} was replaced after ${type}: ${message}`),
  );
  return logs.length === 0 ? {} : { metrics: { "rollout/replaced": logs.length }, logs };
}
