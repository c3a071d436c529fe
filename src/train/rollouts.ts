import type { Model } from "../client/index.ts";
import { environmentRollout, type Environment } from "../environment/index.ts";
import { streamTrajectoryGroups, type GatherOptions } from "../rollout/index.ts";
import type { TrajectoryGroup } from "../trajectory/index.ts";
import { isRetryable } from "../util/retryable.ts";
import type { Split } from "./events.ts";
import { scenarioIndex, type RunDirectory } from "./run-directory.ts";
import { isUnavailable } from "./run-job.ts";

/** Max attempts of one rollout while the service is unavailable: a few minutes, with up to 8 seconds between attempts. */
const UNAVAILABLE_ATTEMPTS = 40;

/** Options of {@link playGroups}. */
export interface PlayOptions<S> {
  readonly directory: RunDirectory;
  readonly model: Model;
  readonly environment: Environment<S>;
  readonly split: Split;
  /** Step of the run, which names the groups' file. */
  readonly step: number;
  /** All scenarios of the step by scenario index. */
  readonly scenarios: ReadonlyMap<number, S>;
  /** Checkpoint that groups not yet on disk are sampled from. */
  readonly checkpointStep: number;
  /** Completed steps of the run at `checkpointStep`. */
  readonly policyVersion: number;
  /** Options for `streamTrajectoryGroups`; `retries` counts retries of a rollout that failed with a transient error. */
  readonly gather: Pick<
    GatherOptions<S>,
    "groupSize" | "concurrency" | "timeoutMs" | "maxExceptions" | "temperature" | "seed" | "concurrencyBy"
  > & {
    readonly retries: number;
  };
  readonly scoreGroup?: ((group: TrajectoryGroup) => TrajectoryGroup | Promise<TrajectoryGroup>) | undefined;
  readonly signal: AbortSignal;
  readonly stopSignal?: AbortSignal | undefined;
}

/**
 * Returns the groups of a step. Groups that are not on disk yet are played first, and each is stored when its rollouts end.
 *
 * @returns All groups, ordered by scenario index; fewer if `stopSignal` was aborted.
 */
export async function playGroups<S>(options: PlayOptions<S>): Promise<TrajectoryGroup[]> {
  const { directory, model, environment, split, step, scenarios, checkpointStep, policyVersion, signal, stopSignal } = options;
  const done = new Set((await directory.groups(split, step)).map(scenarioIndex));
  const missing = [...scenarios.keys()].filter((index) => !done.has(index));
  if (missing.length > 0) {
    const { retries, ...gather } = options.gather;
    const policy = await model.policy(checkpointStep);
    const groups = streamTrajectoryGroups(
      missing.map((index) => scenarios.get(index) as S),
      environmentRollout(environment),
      {
        ...gather,
        progress: false,
        policy,
        indices: missing,
        retries: {
          limit: Math.max(retries, UNAVAILABLE_ATTEMPTS),
          when: (error, attempt) => isUnavailable(error) || (attempt < retries && isRetryable(error)),
        },
        afterEach: options.scoreGroup,
        signal,
        stopSignal,
        onProgress: (progress) => directory.report({ type: "rollout-progress", step, split, ...progress }),
      },
    );
    for await (const group of groups) {
      const kept = withMetadata(group, { step, checkpoint_step: checkpointStep, policy_version: policyVersion });
      await directory.addGroup(split, step, kept);
      directory.report({
        type: "group-end",
        step,
        split,
        scenarioIndex: scenarioIndex(kept),
        rewards: kept.rewards,
        exceptions: kept.exceptions.length,
      });
    }
  }
  await directory.closeGroups(split, step);
  // Always read back from disk, so that training input is byte-identical with and without a crash.
  const groups = await directory.groups(split, step);
  return groups.filter((group) => scenarios.has(scenarioIndex(group)));
}

function withMetadata(group: TrajectoryGroup, added: Readonly<Record<string, number>>): TrajectoryGroup {
  const scenarioId = group.trajectories[0]?.metadata["scenario_id"];
  return group.with({ metadata: { ...group.metadata, ...(scenarioId === undefined ? {} : { scenario_id: scenarioId }), ...added } });
}
