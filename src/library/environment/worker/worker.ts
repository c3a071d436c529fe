/**
 * Worker that plays rollouts of plans. `runWorker` connects it; the class {@link Worker} leases tasks from a `TaskSource`, and starts for each
 * task a chain that ends with its delivery or release. `play-task.ts` has the steps of one task.
 */
import { hostname } from "node:os";
import type PQueue from "p-queue";
import { ArgumentError, ConfigError } from "../../../base/errors.ts";
import type { RolloutOutcome } from "../../../base/schema/index.ts";
import { abortable, linkAbort, onceAborted, type LinkedAbort } from "../../../base/util/abort.ts";
import { backoffMs } from "../../../base/util/backoff.ts";
import { deferred } from "../../../base/util/deferred.ts";
import { delay } from "../../../base/util/delay.ts";
import { checkInteger, getOrInsert, refuse } from "../../../base/util/values.ts";
import { HttpError, type LeasedRolloutInfo, type RolloutPlanInfo } from "../../client/index.ts";
import type { Rollout } from "../../rollout/options.ts";
import { RateLimiter } from "../../rollout/rate-limiter.ts";
import { isUnavailable } from "../../rollout/unavailable.ts";
import { contentHash } from "../content-hash.ts";
import type { Environment } from "../environment.ts";
import { environmentRollout } from "../rollout.ts";
import { openBrokerSource } from "./broker-source.ts";
import type { WorkerEvent, WorkerOptions, WorkerResult } from "./options.ts";
import { deliverTask, playTask, type TaskContext } from "./play-task.ts";
import { serviceSource, type ClaimEnd, type NextTasks, type TaskSource, type WorkerInit } from "./task-source.ts";

/** Max tasks of one lease request. */
const MAX_LEASED = 100;
/** Seconds for which the service holds a lease request without tasks. */
const WAIT_SECONDS = 20;
/** Heartbeats per duration of a lease. */
const HEARTBEATS = 3;
/** Max leased rollouts per concurrent one: rollouts are delivered while the next ones run, unless the service does not take them. */
const MAX_UNDELIVERED = 2;
/** Milliseconds between two lease requests while the service refuses them because of another version of the environment. */
const REFUSED_MS = 5_000;

/** Abort reason of a rollout whose outcome would be dropped. */
const LOST = new DOMException("The lease of the rollout is lost", "AbortError");
/** Abort reason of the rollouts that are released at the end of the worker. */
const STOPPED = new DOMException("The worker has stopped", "AbortError");

/**
 * Plays rollouts of plans on the service, such as the plans of `trainRl` with `workers`, until `signal` aborts: leases tasks, extends the
 * leases while the rollouts run, and delivers their outcomes. Runs on any machine that reaches the service. With a `broker`, the worker
 * leases the rollouts that the broker assigns to it.
 *
 * Rollouts are as in the process of the training run: same seeds, retries, timeouts and rewards. Group rewards are computed by the process
 * that has the plan. If the service is unavailable, the worker keeps its rollouts and repeats its requests.
 *
 * @param options - Service, environments, concurrency and limits.
 * @returns counts of the rollouts, once all are delivered or released.
 * @throws ConfigError `E_CONFIG` for environments without `source` or with the same name, and if a package of the broker is not installed;
 *   ArgumentError `E_ARGUMENT` for an option outside its bounds, and for `planId` with a `broker`.
 * @throws HttpError `E_HTTP` with status 409 if a training run waits for rollouts of an environment with the same name and another content
 *   hash, before the worker had a task; other error statuses that a repeated request would have again.
 * @example
 * ```ts
 * import { connect } from "whetstone";
 *
 * const service = await connect({ baseUrl: "https://train.example.com", apiKey: process.env["WHETSTONE_API_KEY"] });
 * await runWorker({ service, environments: [environment], concurrency: 16, idleExitMs: 600_000 });
 * ```
 */
export async function runWorker(options: WorkerOptions): Promise<WorkerResult> {
  checkOptions(options);
  const hashes = await Promise.all(options.environments.map((environment) => contentHash(environment)));
  const { default: Queue } = await import("p-queue");
  const init: WorkerInit = {
    service: options.service,
    environments: options.environments.map(({ name }, index) => ({ name, hash: hashes[index] ?? "" })),
    name: options.name ?? `${hostname()}:${process.pid}`,
    planId: options.planId,
    leaseSeconds: options.leaseSeconds ?? 60,
  };
  const source = options.broker === undefined ? serviceSource(init) : await openBrokerSource(options.broker, init);
  try {
    return await new Worker(options, init, source, new Queue({ concurrency: options.concurrency ?? 8 })).run();
  } finally {
    await source.close();
  }
}

/** @throws ConfigError `E_CONFIG` or ArgumentError `E_ARGUMENT` as {@link runWorker}. */
function checkOptions({ environments, concurrency, leaseSeconds, idleExitMs, graceMs, broker, planId }: WorkerOptions): void {
  if (environments.length === 0) refuse("environments", "at least one environment", "none");
  const names = environments.map(({ name }) => name);
  const repeatedName = names.find((name, index) => names.indexOf(name) !== index);
  if (repeatedName !== undefined)
    throw new ConfigError(`Expected environments with different names, got \`${repeatedName}\` twice`, { param: "environments" });
  if (concurrency !== undefined) checkInteger("concurrency", concurrency, 1);
  if (leaseSeconds !== undefined && !(leaseSeconds >= 3 && leaseSeconds <= 3600)) refuse("leaseSeconds", "from 3 to 3600", leaseSeconds);
  for (const [name, value] of Object.entries({ idleExitMs, graceMs }))
    if (value !== undefined && !(value >= 0)) refuse(name, "at least 0", value);
  if (broker !== undefined && planId !== undefined)
    throw new ArgumentError("`planId` has no effect with `broker`, which chooses the rollouts; leave one of them out", { param: "planId" });
}

/** Rollout that is being played or delivered. */
interface RunningTask {
  readonly task: LeasedRolloutInfo;
  readonly link: LinkedAbort;
}

/** State of a {@link runWorker} call. */
class Worker {
  readonly #options: WorkerOptions;
  readonly #init: WorkerInit;
  readonly #source: TaskSource;
  readonly #queue: PQueue;
  readonly #rateLimiter: RateLimiter;
  /** Rollout functions by environment and `scoreTimeouts`. */
  readonly #rollouts = new Map<string, Rollout<unknown>>();
  /** Leased tasks that are neither delivered nor released, by id. */
  readonly #running = new Map<string, RunningTask>();
  /** Aborts all rollouts: the grace period is over, or the worker has failed. */
  readonly #abortAll = linkAbort(undefined);
  /** Resolves when a rollout is played, and when it is delivered; replaced by a new promise each time. */
  #slotFreed = deferred<void>();
  /** Error that ends the worker; null without one. */
  #failure: { readonly error: unknown } | null = null;
  /** Whether the worker had a task. */
  #hadTask = false;
  #counts = { delivered: 0, failed: 0, lost: 0, released: 0 };

  constructor(options: WorkerOptions, init: WorkerInit, source: TaskSource, queue: PQueue) {
    this.#options = options;
    this.#init = init;
    this.#source = source;
    this.#queue = queue;
    this.#rateLimiter = new RateLimiter(queue, () => undefined);
    // After a 429 the rate limiter pauses the queue. Aborted rollouts must leave a paused queue, too.
    this.#abortAll.signal.addEventListener("abort", () => this.#rateLimiter.dispose(), { once: true });
  }

  async run(): Promise<WorkerResult> {
    const stop = linkAbort(this.#options.signal);
    const removeListener = onceAborted(this.#abortAll.signal, () => stop.abort(STOPPED));
    const heartbeat = setInterval(() => void this.#extend(), (this.#init.leaseSeconds * 1000) / HEARTBEATS);
    try {
      this.#report({ type: "worker-start", worker: this.#init.name, environments: this.#init.environments });
      const reason = await this.#leaseAll(stop.signal).catch((error: unknown) => {
        this.#fail(error);
        return "stopped" as const;
      });
      await this.#finish();
      if (this.#failure !== null) throw this.#failure.error;
      return { reason, ...this.#counts };
    } finally {
      clearInterval(heartbeat);
      removeListener();
      stop.dispose();
      this.#rateLimiter.dispose();
    }
  }

  /** Leases and starts rollouts until `signal` aborts, or there was no task for `idleExitMs`. */
  async #leaseAll(signal: AbortSignal): Promise<WorkerResult["reason"]> {
    const { idleExitMs = Number.POSITIVE_INFINITY } = this.#options;
    let lastTaskMs = performance.now();
    let failures = 0;
    while (!signal.aborted) {
      const { concurrency, size, pending } = this.#queue;
      const freeSlots = Math.min(concurrency - size - pending, MAX_UNDELIVERED * concurrency - this.#running.size);
      if (freeSlots <= 0) {
        await abortable(this.#slotFreed.promise, signal).catch(() => undefined);
        lastTaskMs = performance.now();
        continue;
      }
      const remainingIdleMs = lastTaskMs + idleExitMs - performance.now();
      if (remainingIdleMs <= 0 && this.#running.size === 0) return "idle";
      try {
        const waitSeconds = Math.max(0, Math.min(WAIT_SECONDS, remainingIdleMs / 1000));
        const count = await this.#lease({ max: Math.min(freeSlots, MAX_LEASED), waitSeconds, signal });
        failures = 0;
        if (count > 0 || this.#running.size > 0) lastTaskMs = performance.now();
      } catch (error) {
        if (signal.aborted) break;
        await this.#afterRefusal(error, failures, signal);
        failures++;
      }
    }
    return "stopped";
  }

  /** Leases up to `max` tasks and starts them. Returns their number. */
  async #lease(next: NextTasks): Promise<number> {
    const { tasks, plans } = await this.#source.lease(next);
    for (const task of tasks) {
      const plan = plans.find(({ id }) => id === task.planId);
      if (plan !== undefined) this.#start(task, plan);
    }
    this.#hadTask ||= tasks.length > 0;
    return tasks.length;
  }

  /** Waits after a failed lease request. @throws the error if a repeated request would have the same one. */
  async #afterRefusal(error: unknown, failures: number, signal: AbortSignal): Promise<void> {
    const isOtherVersion = error instanceof HttpError && error.status === 409;
    // A worker that had tasks is of the right version for a run that has none at the moment.
    if (!isUnavailable(error) && !(isOtherVersion && this.#hadTask)) throw error;
    if (!isOtherVersion) this.#onUnavailable(error as Error);
    await delay(isOtherVersion ? REFUSED_MS : backoffMs(failures), { signal }).catch(() => undefined);
  }

  /** Starts a leased task. */
  #start(task: LeasedRolloutInfo, plan: RolloutPlanInfo): void {
    // The worker has leased the task again after its own lease had expired.
    this.#running.get(task.id)?.link.abort(LOST);
    const running: RunningTask = { task, link: linkAbort(this.#abortAll.signal) };
    this.#running.set(task.id, running);
    void this.#complete(running, plan);
  }

  /** Plays a task and ends its claim. Never rejects: errors that end the worker are passed to {@link #fail}. */
  async #complete(running: RunningTask, plan: RolloutPlanInfo): Promise<void> {
    const { task, link } = running;
    const end = await this.#play(task, plan, link.signal).catch((error: unknown): ClaimEnd => {
      this.#fail(error);
      return "released";
    });
    try {
      await this.#source.settle(task, end);
    } catch (error) {
      this.#onUnavailable(error as Error);
    } finally {
      link.dispose();
      if (this.#running.get(task.id) === running) this.#running.delete(task.id);
      this.#reportFreeSlot();
    }
  }

  /** Wakes the waits for a free slot. */
  #reportFreeSlot(): void {
    this.#slotFreed.resolve();
    this.#slotFreed = deferred();
  }

  /** Plays a rollout when it is its turn, and delivers it. @throws only errors that end the worker. */
  async #play(task: LeasedRolloutInfo, plan: RolloutPlanInfo, signal: AbortSignal): Promise<ClaimEnd> {
    const leasedMs = performance.now();
    const { service } = this.#options;
    const context: TaskContext = {
      service,
      rollout: this.#rolloutOf(plan),
      rateLimiter: this.#rateLimiter,
      signal,
      onUnavailable: (error) => this.#onUnavailable(error),
    };
    try {
      const outcome = await this.#queue.add(() => {
        signal.throwIfAborted();
        return playTask(context, task, plan);
      });
      // The next rollout does not wait for the delivery. The queue counts this one as pending until the current callbacks have run.
      setImmediate(() => this.#reportFreeSlot());
      const delivered = await deliverTask(context, task, outcome);
      if (delivered === null) this.#countLost(task);
      else this.#countDelivered(task, outcome, (performance.now() - leasedMs) / 1000);
      return "over";
    } catch (error) {
      if (!signal.aborted) throw error;
      if (signal.reason === LOST) {
        this.#countLost(task);
        return "over";
      }
      await this.#release(task);
      return "released";
    }
  }

  /** Returns the rollout function of a plan. @throws ArgumentError `E_ARGUMENT` for a plan of an unknown environment. */
  #rolloutOf({ environment: name, scoreTimeouts }: RolloutPlanInfo): Rollout<unknown> {
    return getOrInsert(this.#rollouts, `${name}\n${scoreTimeouts}`, () => {
      const environment = this.#options.environments.find((each) => each.name === name);
      if (environment === undefined)
        throw new ArgumentError(`The service leased a rollout of environment \`${name}\`, which this worker lacks`);
      return environmentRollout(environment as Environment<unknown>, { scoreTimeouts });
    });
  }

  /** Counts and reports a delivered outcome. */
  #countDelivered({ id, planId, group, index }: LeasedRolloutInfo, outcome: RolloutOutcome, seconds: number): void {
    const exception = outcome.exception ?? null;
    this.#counts.delivered++;
    if (exception !== null) this.#counts.failed++;
    const reward = outcome.trajectory?.reward ?? null;
    this.#report({ type: "rollout-deliver", planId, taskId: id, group, index, reward, exception, seconds });
  }

  /** Counts and reports a dropped outcome. */
  #countLost({ id, planId }: LeasedRolloutInfo): void {
    this.#counts.lost++;
    this.#report({ type: "rollout-lose", planId, taskId: id });
  }

  /** Releases a lease. A release that fails is not repeated, because the lease expires. */
  async #release(task: LeasedRolloutInfo): Promise<void> {
    this.#counts.released++;
    await this.#options.service.rolloutPlans.release([task], { timeoutMs: 10_000 }).catch((error: unknown) => {
      if (!isUnavailable(error) && !(error instanceof HttpError)) return;
      this.#onUnavailable(error);
    });
  }

  /** Extends the leases of all rollouts, and aborts the rollouts with lost leases. */
  async #extend(): Promise<void> {
    const tasks = [...this.#running.values()].map(({ task }) => task);
    if (tasks.length === 0) return;
    this.#source.extend().catch((error: unknown) => this.#onUnavailable(error as Error));
    try {
      const { lost } = await this.#options.service.rolloutPlans.extend(tasks, { leaseSeconds: this.#init.leaseSeconds });
      for (const id of lost) this.#running.get(id)?.link.abort(LOST);
    } catch (error) {
      // The next heartbeat tries again. Outcomes of expired leases are accepted until other workers lease the tasks.
      if (isUnavailable(error)) this.#onUnavailable(error);
      else this.#fail(error);
    }
  }

  /** Waits for the running rollouts, which are released after `graceMs`. */
  async #finish(): Promise<void> {
    const { graceMs = 30_000 } = this.#options;
    const timer = setTimeout(() => this.#abortAll.abort(STOPPED), graceMs);
    while (this.#running.size > 0) await this.#slotFreed.promise;
    clearTimeout(timer);
  }

  /** Ends the worker with an error. */
  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#abortAll.abort(STOPPED);
  }

  #onUnavailable({ message }: Error): void {
    this.#report({ type: "service-unavailable", message });
  }

  /** Calls `onEvent`, whose error ends the worker. */
  #report(event: WorkerEvent): void {
    try {
      this.#options.onEvent?.(event);
    } catch (error) {
      this.#fail(error);
    }
  }
}
