import type { Model } from "../../library/client/index.ts";
import { environmentRollout, type Environment } from "../../library/environment/index.ts";
import { streamTrajectoryGroups, type GatherOptions, type Rollout, type RolloutContext } from "../../library/rollout/index.ts";
import type { TrajectoryGroup } from "../../base/trajectory/index.ts";
import { isRetryable } from "../../base/util/retryable.ts";
import type { Split } from "../../run/data.ts";
import { scenarioIndex, type RunDirectory } from "../../run/run-directory.ts";
import { isUnavailable, reportUnavailable } from "./run-job.ts";

/** Max attempts of one rollout while the service is unavailable: a few minutes, with up to 8 seconds between attempts. */
const UNAVAILABLE_ATTEMPTS = 40;

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
  const done = new Set(stored.map(scenarioIndex));
  const missing = [...scenarios.keys()].filter((index) => !done.has(index));
  if (missing.length > 0) await playMissing(options, missing, stored);
  await directory.closeGroups(split, step);
  // Always read back from disk, so that training input is byte-identical with and without a crash.
  const groups = await directory.groups(split, step);
  return groups.filter((group) => scenarios.has(scenarioIndex(group)));
}

async function playMissing(options: PlayOptions, missing: readonly number[], stored: readonly TrajectoryGroup[]): Promise<void> {
  const { directory, model, split, step, scenarios, checkpointStep, policyVersion, isLabeled, signal, stopSignal } = options;
  const { retries, ...gather } = options.gather;
  const policy = await model.policy(checkpointStep);
  const groups = streamTrajectoryGroups(
    missing.map((index) => scenarios.get(index) as EnvironmentScenario),
    rolloutOf(options.scoreTimeouts),
    {
      ...gather,
      progress: false,
      policy,
      maxExceptions: exceptionsLeft(options, stored),
      indices: missing,
      retries: {
        limit: Math.max(retries, UNAVAILABLE_ATTEMPTS),
        when(error, attempt) {
          if (!isUnavailable(error)) return attempt < retries && isRetryable(error);
          reportUnavailable({ directory, step }, error);
          return true;
        },
      },
      afterEach: options.scoreGroup,
      signal,
      stopSignal,
      onProgress: (progress) => directory.report({ type: "rollout-progress", step, split, ...progress }),
      onEvent(event) {
        if (event.type !== "rollout-replace") return;
        const { group, index, replacement, exception } = event;
        directory.report({ type: "rollout-replace", step, split, scenarioIndex: group, index, replacement, exception });
      },
    },
  );
  for await (const group of groups) {
    const environment = scenarios.get(scenarioIndex(group))?.environment.name;
    const label = isLabeled && environment !== undefined ? { environment } : {};
    const labeled = withMetadata(group, { ...label, step, checkpoint_step: checkpointStep, policy_version: policyVersion });
    await directory.addGroup(split, step, labeled);
    const { rewards, exceptions } = labeled;
    directory.report({ type: "group-end", step, split, scenarioIndex: scenarioIndex(labeled), rewards, exceptions: exceptions.length });
  }
}

/** Returns the number of rollouts that may still fail: the limit of the step, less the failures that are already stored. */
function exceptionsLeft({ gather: { maxExceptions, groupSize }, scenarios }: PlayOptions, stored: readonly TrajectoryGroup[]): number {
  const allowed = maxExceptions < 1 ? Math.floor(maxExceptions * scenarios.size * groupSize) : maxExceptions;
  return Math.max(0, allowed - stored.reduce((sum, { exceptions }) => sum + exceptions.length, 0));
}

/** Returns a rollout that plays each scenario with its environment. */
function rolloutOf(scoreTimeouts: boolean | undefined): Rollout<EnvironmentScenario> {
  const rollouts = new Map<Environment<unknown>, Rollout<unknown>>();
  const rolloutFor = (environment: Environment<unknown>) => {
    const rollout = rollouts.get(environment) ?? environmentRollout(environment, { scoreTimeouts });
    rollouts.set(environment, rollout);
    return rollout;
  };
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
  return group.with({ metadata: { ...group.metadata, ...(scenarioId === undefined ? {} : { scenario_id: scenarioId }), ...added } });
}
