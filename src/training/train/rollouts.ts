/** Rollouts of a step or evaluation: plays the groups that are not on disk, in this process or on workers, and stores each when it ends. */
import { basename } from "node:path";
import type { Model } from "../../library/client/index.ts";
import { environmentRollout, type Environment, type RolloutBroker } from "../../library/environment/index.ts";
import { streamGroups } from "../../library/rollout/gather.ts";
import type { GatherOptions, Rollout, RolloutContext, StreamOptions } from "../../library/rollout/index.ts";
import { patientRetries } from "../../library/rollout/unavailable.ts";
import type { TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { Split } from "../../run/data.ts";
import { scenarioIndex, type RunDirectory } from "../../run/run-directory.ts";
import { linkAbort, onceAborted } from "../../base/util/abort.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { hasWorkers } from "./options.ts";
import { reportUnavailable } from "./run-job.ts";
import { withOwnHistories } from "./stored-rollouts.ts";
import { WorkerPlayer } from "./worker-player.ts";

/** Reason for which the rollouts of workers are aborted when the run stops. */
const STOPPED = new DOMException("The run has stopped", "AbortError");

/** Scenario with the environment that plays it. */
export interface EnvironmentScenario {
  readonly environment: Environment<unknown>;
  readonly scenario: unknown;
}

/** Options of {@link playGroups}. */
export interface PlayOptions {
  readonly directory: RunDirectory;
  readonly model: Model;
  readonly split: Split;
  /** Step of the run, which names the groups' file. */
  readonly step: number;
  /** All scenarios of the step by scenario index. */
  readonly scenarios: ReadonlyMap<number, EnvironmentScenario>;
  /** Whether groups get the metadata `environment`: true for a run on several environments. */
  readonly isLabeled: boolean;
  /** Checkpoint that groups not yet on disk are sampled from. */
  readonly checkpointStep: number;
  /** Completed steps of the run at `checkpointStep`. */
  readonly policyVersion: number;
  /** Options for `streamTrajectoryGroups`; `retries` counts retries of a rollout that failed with a transient error. */
  readonly gather: Pick<GatherOptions, "concurrency" | "timeoutMs" | "temperature" | "chatTemplateKwargs" | "seed" | "replacements"> & {
    readonly groupSize: number;
    readonly retries: number;
    /** Max failed rollouts of the step, as a count or, below 1, as a fraction of the rollouts of `scenarios`. */
    readonly maxExceptions: number;
  };
  /** Whether rollouts that time out are scored. @default false */
  readonly scoreTimeouts?: boolean | undefined;
  /** Called with each group before it is stored; returns the group to store. @default stores the group as it is */
  readonly scoreGroup?: ((group: TrajectoryGroup) => TrajectoryGroup | Promise<TrajectoryGroup>) | undefined;
  /** Whether workers play the rollouts, instead of this process, or the broker that assigns rollouts to them. @default false */
  readonly workers?: boolean | RolloutBroker | undefined;
  readonly signal: AbortSignal;
  /** After its abort no further group starts; {@link playGroups} then returns the finished groups. @default no stop */
  readonly stopSignal?: AbortSignal | undefined;
}

/**
 * Returns the groups of a step. Groups that are not on disk yet are played first, and each is stored when its rollouts end.
 *
 * @returns All groups, ordered by scenario index; fewer if `stopSignal` was aborted.
 */
export async function playGroups(options: PlayOptions): Promise<TrajectoryGroup[]> {
  const { directory, split, step, scenarios } = options;
  const stored = await directory.groups(split, step);
  const storedIndices = new Set(stored.map(scenarioIndex));
  const missing = [...scenarios.keys()].filter((index) => !storedIndices.has(index));
  if (missing.length > 0) await playMissing(options, missing, stored);
  await directory.closeGroups(split, step);
  // Always read back from disk, so that training input is byte-identical with and without a crash.
  const groups = await directory.groups(split, step);
  return groups.filter((group) => scenarios.has(scenarioIndex(group)));
}

/**
 * Plays groups, and stores each with its metadata.
 *
 * @param missing - Indices of the scenarios to play.
 * @param stored - Groups of the step that are on disk. Their failures count for the limit of the step.
 */
async function playMissing(options: PlayOptions, missing: readonly number[], stored: readonly TrajectoryGroup[]): Promise<void> {
  const { directory, split, step, scenarios, checkpointStep, policyVersion, isLabeled } = options;
  const playedGroups = hasWorkers(options) ? onWorkers(options, missing, stored) : inProcess(options, missing, stored);
  for await (const { group, rolloutPlan } of playedGroups) {
    const environment = scenarios.get(scenarioIndex(group))?.environment.name;
    const label = {
      ...(isLabeled && environment !== undefined ? { environment } : {}),
      ...(rolloutPlan === undefined ? {} : { rollout_plan: rolloutPlan }),
    };
    const labeled = withMetadata(group, { ...label, step, checkpoint_step: checkpointStep, policy_version: policyVersion });
    await directory.addGroup(split, step, labeled);
    const { rewards, exceptions } = labeled;
    directory.report({ type: "group-end", step, split, scenarioIndex: scenarioIndex(labeled), rewards, exceptions: exceptions.length });
  }
}

/** Finished group, with the plan of its rollouts. */
interface PlayedGroup {
  readonly group: TrajectoryGroup;
  readonly rolloutPlan?: string | undefined;
}

/** Returns the options of the runner that do not depend on the place in which the rollouts are played. */
function commonOptions(options: PlayOptions, missing: readonly number[], stored: readonly TrajectoryGroup[]) {
  const { directory, split, step } = options;
  const { groupSize, seed } = options.gather;
  return {
    groupSize,
    seed,
    progress: false,
    maxExceptions: remainingExceptions(options, stored),
    indices: missing,
    onProgress: (progress) => directory.report({ type: "rollout-progress", step, split, ...progress }),
    onEvent(event) {
      if (event.type !== "rollout-replace") return;
      const { group, index, replacement, exception } = event;
      directory.report({ type: "rollout-replace", step, split, scenarioIndex: group, index, replacement, exception });
    },
  } satisfies StreamOptions<EnvironmentScenario>;
}

/** Plays groups in this process. */
async function* inProcess(
  options: PlayOptions,
  missing: readonly number[],
  stored: readonly TrajectoryGroup[],
): AsyncGenerator<PlayedGroup> {
  const { directory, model, step, scenarios, checkpointStep, signal, stopSignal } = options;
  const { retries, ...gather } = options.gather;
  const policy = await model.policy(checkpointStep);
  const groups = streamGroups(scenariosAt(scenarios, missing), rolloutOf(options.scoreTimeouts), {
    ...gather,
    ...commonOptions(options, missing, stored),
    policy,
    traceAttributes: traceAttributesOf(options),
    retries: patientRetries(retries, (error) => reportUnavailable({ directory, step }, error)),
    afterEach: options.scoreGroup,
    signal,
    stopSignal,
  });
  for await (const group of groups) yield { group };
}

/** Plays groups on workers. Group rewards are computed in this process. */
async function* onWorkers(
  options: PlayOptions,
  missing: readonly number[],
  stored: readonly TrajectoryGroup[],
): AsyncGenerator<PlayedGroup> {
  const { scenarios, scoreGroup, stopSignal } = options;
  const policy = await options.model.policy(options.checkpointStep);
  const link = linkAbort(options.signal);
  const removeListener = onceAborted(stopSignal, () => link.abort(STOPPED));
  let player: WorkerPlayer | undefined;
  try {
    const groups = streamGroups(scenariosAt(scenarios, missing), rolloutOf(options.scoreTimeouts), {
      ...commonOptions(options, missing, stored),
      // All rollouts wait for workers at the same time.
      concurrency: missing.length * options.gather.groupSize,
      createPlayer(init) {
        player = new WorkerPlayer({ ...init, options, policy, indices: missing });
        return player;
      },
      afterEach: scoreGroup === undefined ? undefined : async (group) => withOwnHistories(group, await scoreGroup(group)),
      signal: link.signal,
    });
    for await (const group of groups) yield { group, rolloutPlan: player?.planOf(scenarioIndex(group)) };
  } catch (error) {
    // A stop ends the iteration; the groups that have ended are stored.
    if (link.signal.reason !== STOPPED || options.signal.aborted) throw error;
  } finally {
    removeListener();
    link.dispose();
    await player?.close();
  }
}

/** Returns scenarios by their indices, in order. */
function scenariosAt(scenarios: PlayOptions["scenarios"], indices: readonly number[]): EnvironmentScenario[] {
  return indices.map((index) => scenarios.get(index) as EnvironmentScenario);
}

/** Returns the attributes of the spans of the rollouts. */
function traceAttributesOf({ directory, split, step, scenarios, policyVersion }: PlayOptions): Record<string, string | number> {
  const environmentNames = new Set([...scenarios.values()].map(({ environment }) => environment.name));
  const [name] = environmentNames;
  return {
    "whetstone.run.id": basename(directory.path),
    "whetstone.step": step,
    "whetstone.split": split,
    "whetstone.policy_version": policyVersion,
    ...(environmentNames.size === 1 && name !== undefined ? { "gen_ai.agent.name": name } : {}),
  };
}

/** Returns the number of rollouts that may still fail: the limit of the step, less the failures that are already stored. */
function remainingExceptions({ gather: { maxExceptions, groupSize }, scenarios }: PlayOptions, stored: readonly TrajectoryGroup[]): number {
  const allowed = maxExceptions < 1 ? Math.floor(maxExceptions * scenarios.size * groupSize) : maxExceptions;
  const failed = stored.reduce((sum, { exceptions }) => sum + exceptions.length, 0);
  return Math.max(0, allowed - failed);
}

/** Returns a rollout that plays each scenario with its environment. */
function rolloutOf(scoreTimeouts: boolean | undefined): Rollout<EnvironmentScenario> {
  const rollouts = new Map<Environment<unknown>, Rollout<unknown>>();
  const rolloutFor = (environment: Environment<unknown>) =>
    getOrInsert(rollouts, environment, () => environmentRollout(environment, { scoreTimeouts }));
  const rollout: Rollout<EnvironmentScenario> = ({ environment, scenario }, context) => rolloutFor(environment)(scenario, context);
  return Object.assign(rollout, {
    scoreGroup: async ({ environment, scenario }: EnvironmentScenario, group: TrajectoryGroup, signal: AbortSignal) =>
      (await rolloutFor(environment).scoreGroup?.(scenario, group, signal)) ?? group,
    afterTimeout: async ({ environment, scenario }: EnvironmentScenario, context: RolloutContext, signal: AbortSignal) =>
      (await rolloutFor(environment).afterTimeout?.(scenario, context, signal)) ?? null,
  });
}

/** Adds metadata to a group, with the id of its scenario if a trajectory has it. */
function withMetadata(group: TrajectoryGroup, added: Readonly<Record<string, number | string>>): TrajectoryGroup {
  const scenarioId = group.trajectories[0]?.metadata["scenario_id"];
  const scenario = scenarioId === undefined ? {} : { scenario_id: scenarioId };
  return group.with({ metadata: { ...group.metadata, ...scenario, ...added } });
}
