/** Player of rollouts on workers: creates rollout plans on the service, and waits for the outcomes that workers deliver. */
import { createHash } from "node:crypto";
import PQueue from "p-queue";
import { ArgumentError, ConflictError, DataError, type WhetstoneError } from "../../base/errors.ts";
import type { RolloutOutcome } from "../../base/schema/index.ts";
import { Trajectory, type Policy } from "../../base/trajectory/index.ts";
import { validateTrajectory } from "../../base/trajectory/validate.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { deferred, type Deferred } from "../../base/util/deferred.ts";
import { delay } from "../../base/util/delay.ts";
import { isPlainJson } from "../../base/util/plain-json.ts";
import { getOrInsert } from "../../base/util/values.ts";
import {
  HttpError,
  type CreateRolloutPlanOptions,
  type RolloutGroupInput,
  type RolloutPlanInfo,
  type RolloutTaskInfo,
} from "../../library/client/index.ts";
import { contentHash, type Environment } from "../../library/environment/index.ts";
import type { Outcome, Player, PlayerInit } from "../../library/rollout/attempts.ts";
import { isUnavailable } from "../../library/rollout/unavailable.ts";
import type { EnvironmentScenario, PlayOptions } from "./rollouts.ts";
import { RolloutDispatch } from "./rollout-dispatch.ts";
import { PATIENCE_MS, reportUnavailable } from "./run-job.ts";
import { withTask } from "./stored-rollouts.ts";

/** Max groups in one request. */
const MAX_REQUEST_GROUPS = 500;
/** Max characters of the scenarios in one request, as JSON. */
const MAX_REQUEST_CHARACTERS = 2_000_000;
/** Max outcomes that are fetched at the same time. */
const MAX_FETCHES = 8;
/** Seconds for which the service holds a request for finished tasks. */
const WAIT_SECONDS = 20;
/** Max plans of one step that earlier starts of the run have cancelled. */
const MAX_CANCELLED_PLANS = 1000;

/** Input of {@link WorkerPlayer}. */
export interface WorkerPlayerInit extends PlayerInit {
  readonly options: PlayOptions;
  readonly policy: Pick<Policy, "id" | "step">;
  /** Indices of the scenarios to play. */
  readonly indices: readonly number[];
}

/** Plays rollouts on workers. The scenarios of each environment have a separate plan. */
export class WorkerPlayer implements Player<EnvironmentScenario> {
  readonly #init: WorkerPlayerInit;
  /** Outcomes by group and index of the rollout. */
  readonly #outcomes = new Map<string, Deferred<Outcome>>();
  /** Ids of the plans by scenario index. */
  readonly #plans = new Map<number, string>();
  /** Messages to the workers of a broker, if the run has one. */
  readonly #dispatch: RolloutDispatch;
  /** Resolves when all outcomes have arrived; rejects with the error that ended the plans. */
  readonly #running: Promise<void>;
  /** Whether all outcomes have arrived. */
  #isDone = false;

  constructor(init: WorkerPlayerInit) {
    this.#init = init;
    const { workers } = init.options;
    this.#dispatch = new RolloutDispatch(typeof workers === "object" ? workers : null, (request) => this.#patiently(request));
    this.#running = this.#run();
    this.#running.catch(() => undefined);
  }

  /** Resolves with the outcome of a rollout when a worker has delivered it. */
  async play(_scenario: EnvironmentScenario, group: number, index: number): Promise<Outcome> {
    const outcome = this.#outcome(group, index).promise;
    // A failure of the plans rejects the race. When `#running` resolves, all outcomes have arrived, and `outcome` is one of them.
    return Promise.race([outcome, this.#running.then(() => outcome)]);
  }

  /** Returns the id of a scenario's plan. */
  planOf(scenarioIndex: number): string | undefined {
    return this.#plans.get(scenarioIndex);
  }

  /** Cancels the plans unless all outcomes have arrived. Finished tasks keep their outcomes. */
  async close(): Promise<void> {
    await this.#running.catch(() => undefined);
    if (!this.#isDone) {
      const { rolloutPlans } = this.#init.options.model.service;
      for (const id of new Set(this.#plans.values())) await rolloutPlans.cancel(id, { timeoutMs: 10_000 }).catch(() => undefined);
    }
    await this.#dispatch.close();
  }

  /** Plays all scenarios, with one plan per environment. */
  async #run(): Promise<void> {
    const { options, indices } = this.#init;
    const byEnvironment = new Map<Environment<unknown>, RolloutGroupInput[]>();
    for (const index of indices) {
      const { environment, scenario } = options.scenarios.get(index) as EnvironmentScenario;
      getOrInsert(byEnvironment, environment, () => []).push({ group: index, scenario });
    }
    await Promise.all([...byEnvironment].map(([environment, groups]) => this.#playEnvironment(environment, groups)));
    this.#isDone = true;
  }

  /** Creates or continues the plan of an environment, and waits for the outcomes of its rollouts. */
  async #playEnvironment(environment: Environment<unknown>, groups: readonly RolloutGroupInput[]): Promise<void> {
    checkScenarios(environment, groups);
    const hash = await contentHash(environment);
    const plan = await this.#openPlan({ environment: environment.name, hash }, groups);
    const indices = new Set(groups.map(({ group }) => group));
    await this.#dispatch.send(plan, indices, this.#init.groupSize);
    await this.#follow(plan, indices);
  }

  /**
   * Returns an open plan with the groups.
   *
   * The idempotency key of plan number 0, 1, 2 … of a step depends only on the run and the step. A resumed run therefore gets the plan that an
   * earlier start has created; if that plan was cancelled, which its status 409 shows, the next number is tried.
   */
  async #openPlan(
    version: { readonly environment: string; readonly hash: string },
    groups: readonly RolloutGroupInput[],
  ): Promise<RolloutPlanInfo> {
    const { options, signal } = this.#init;
    const { rolloutPlans } = options.model.service;
    for (let number = 0; number < MAX_CANCELLED_PLANS; number++) {
      const plan = await this.#patiently(() => rolloutPlans.create({ ...this.#planOptions(version, number), signal }));
      for (const { group } of groups) this.#plans.set(group, plan.id);
      try {
        for (const page of pagesOf(groups)) await this.#patiently(() => rolloutPlans.addGroups(plan.id, page, { signal }));
        return plan;
      } catch (error) {
        const isCancelled = error instanceof HttpError && error.status === 409;
        if (!isCancelled) throw error;
      }
    }
    throw new ConflictError(
      `All ${MAX_CANCELLED_PLANS} rollout plans of step ${options.step} were cancelled. Start the run in another directory`,
    );
  }

  /** Returns the options of plan `number` of the step, with its idempotency key. */
  #planOptions({ environment, hash }: { readonly environment: string; readonly hash: string }, number: number): CreateRolloutPlanOptions {
    const { options, policy, seed, groupSize } = this.#init;
    const { directory, model, split, step, gather, scoreTimeouts } = options;
    const { temperature, chatTemplateKwargs, timeoutMs, retries, replacements } = gather;
    const identity = [model.id, directory.state.startTime, split, step, policy.id, environment, hash, number];
    return {
      environment,
      environmentHash: hash,
      modelId: model.id,
      policy: policy.id,
      policyStep: policy.step,
      groupSize,
      seed,
      temperature,
      chatTemplateKwargs,
      timeoutMs,
      retries,
      replacements,
      scoreTimeouts,
      metadata: { split, step },
      idempotencyKey: createHash("sha256").update(JSON.stringify(identity)).digest("hex"),
    };
  }

  /** Fetches the outcomes of a plan's tasks as they finish, until all rollouts of the groups have one. */
  async #follow(plan: RolloutPlanInfo, groups: ReadonlySet<number>): Promise<void> {
    const { options, groupSize, signal } = this.#init;
    const { rolloutPlans } = options.model.service;
    const fetches = new PQueue({ concurrency: MAX_FETCHES });
    /** Number of rollouts without an outcome. */
    let unfinished = groups.size * groupSize;
    /** Position after the last task received, see `rolloutPlans.finished`. */
    let after = 0;
    while (unfinished > 0) {
      const position = after;
      const { plan: current, finished } = await this.#patiently(() =>
        rolloutPlans.finished(plan.id, { after: position, waitSeconds: WAIT_SECONDS, signal }),
      );
      if (finished.length === 0 && current.status !== "open") {
        throw new ConflictError(`Rollout plan '${plan.id}' was cancelled. Start the run again and it resumes with another one`);
      }
      for (const task of finished) this.#dispatch.finish(plan.id, task);
      if (finished.length === 0) await this.#dispatch.resend(plan.id);
      const wanted = finished.filter(({ group }) => groups.has(group));
      await Promise.all(wanted.map((task) => fetches.add(() => this.#fetch(task))));
      unfinished -= wanted.length;
      after = finished.at(-1)?.finished ?? after;
    }
  }

  /** Fetches the outcome of a task. */
  async #fetch(task: RolloutTaskInfo): Promise<void> {
    const { options, signal, onEvent } = this.#init;
    const outcome = await this.#patiently(() => options.model.service.rolloutPlans.outcome(task.id, { signal }));
    const { group, index } = task;
    const attempt = outcome.attempt ?? 0;
    for (const [position, exception] of (outcome.replaced ?? []).entries())
      onEvent({ type: "rollout-replace", group, index, attempt, exception, replacement: position + 1 });
    this.#outcome(group, index).resolve(outcomeOf(outcome, task));
  }

  /** Returns the deferred outcome of a rollout; created at the first call. */
  #outcome(group: number, index: number): Deferred<Outcome> {
    return getOrInsert(this.#outcomes, `${group}:${index}`, () => deferred<Outcome>());
  }

  /** Repeats a request while the service is unavailable, for at most {@link PATIENCE_MS}. */
  async #patiently<T>(request: () => Promise<T>): Promise<T> {
    const startedMs = performance.now();
    for (let failures = 0; ; failures++) {
      try {
        return await request();
      } catch (error) {
        const { options, signal } = this.#init;
        if (signal.aborted || !isUnavailable(error) || performance.now() - startedMs > PATIENCE_MS) throw error;
        reportUnavailable(options, error as WhetstoneError);
        await delay(backoffMs(failures), { signal });
      }
    }
  }
}

/** Converts an outcome. @throws DataError `E_DATA` for a trajectory that is not valid. */
function outcomeOf({ trajectory, exception, replaced, attempt }: RolloutOutcome, { id }: RolloutTaskInfo): Outcome {
  const attempts = { attempt: attempt ?? 0, replaced: replaced ?? [] };
  if ((trajectory ?? null) === null) {
    return { ...attempts, exception: exception ?? { type: "Error", message: `Rollout task ${id} has no outcome`, traceback: "" } };
  }
  const result = validateTrajectory(trajectory);
  if (!result.success)
    throw new DataError(`Expected rollout task '${id}' to have a valid trajectory, got one that is not`, { cause: result.error });
  return { ...attempts, trajectory: withTask(Trajectory.fromOwned(result.data), id) };
}

/** Checks that workers get the same scenarios. @throws ArgumentError `E_ARGUMENT` for a scenario that JSON would change. */
function checkScenarios({ name }: Environment<unknown>, groups: readonly RolloutGroupInput[]): void {
  const changed = groups.find(({ scenario }) => !isPlainJson(scenario));
  if (changed === undefined) return;
  throw new ArgumentError(
    `Expected the scenarios of environment \`${name}\` to be plain JSON values, because workers get them as JSON; scenario ${changed.group} has other values, such as functions, dates or class instances`,
    { param: "workers" },
  );
}

/** Divides groups into pages for single requests. */
function* pagesOf(groups: readonly RolloutGroupInput[]): Generator<RolloutGroupInput[], void> {
  let page: RolloutGroupInput[] = [];
  let characters = 0;
  for (const group of groups) {
    const { length } = JSON.stringify(group.scenario);
    if (page.length >= MAX_REQUEST_GROUPS || (page.length > 0 && characters + length > MAX_REQUEST_CHARACTERS)) {
      yield page;
      [page, characters] = [[], 0];
    }
    page.push(group);
    characters += length;
  }
  if (page.length > 0) yield page;
}
