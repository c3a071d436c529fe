/** Rollouts of many scenarios as groups: gathered in scenario order, or streamed in order of completion. `runner.ts` runs them. */
import { checkInteger } from "../../base/util/values.ts";
import { trajectoryGroups, type TrajectoryGroup, type TrajectoryGroups } from "../../base/trajectory/index.ts";
import { linkAbort } from "../../base/util/abort.ts";
import { pushIterator } from "../../base/util/push-iterator.ts";
import type { GatherOptions, Rollout, StreamOptions } from "./options.ts";
import { runRollouts, type RolloutsOptions } from "./runner.ts";

/** Default of `maxUnread`. */
const DEFAULT_MAX_UNREAD = 64;

/**
 * Runs every scenario `groupSize` times and gathers the trajectories into groups, one per scenario, in scenario order.
 *
 * A failed rollout is data: it is recorded in its group's `exceptions`. With more than `maxExceptions` failures all rollouts are aborted,
 * and the call rejects once running rollouts have settled, including those that ignore their signal.
 *
 * @param scenarios - Scenarios; read completely before the first rollout.
 * @param rollout - Function that runs one scenario.
 * @param options - Group size, concurrency, limits and callbacks.
 * @returns The groups, with `stats` over all of them.
 * @throws ArgumentError `E_ARGUMENT` before anything runs for an option out of range, or when a rollout does not return a finished
 *   trajectory.
 * @throws TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS` for more than `maxExceptions` failures.
 * @throws the signal's reason, or any error of `onProgress`, `onEvent` or `afterEach`.
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 *
 * const scenarios = [{ prompt: "Reverse: abc", answer: "cba" }];
 * const groups = await gatherTrajectoryGroups(
 *   scenarios,
 *   async (scenario, { policy, sampling }) => {
 *     const t = trajectory({ messages: [{ role: "user", content: scenario.prompt }] });
 *     await t.sample(policy, sampling);
 *     return t.finish({ reward: t.lastText === scenario.answer ? 1 : 0 });
 *   },
 *   { policy, groupSize: 8, concurrency: 64, timeoutMs: 30_000, maxExceptions: 0.05 },
 * );
 * console.log(groups.stats.reward.mean);
 * ```
 */
export async function gatherTrajectoryGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  options: GatherOptions<S> = {},
): Promise<TrajectoryGroups> {
  return gatherGroups(scenarios, rollout, options);
}

/** Runs {@link gatherTrajectoryGroups} with the internal options of the runner. */
export async function gatherGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  options: Omit<RolloutsOptions<S>, "onGroups">,
): Promise<TrajectoryGroups> {
  /** Groups of each scenario, by its position. */
  const byScenario: (readonly TrajectoryGroup[])[] = [];
  const onGroups = (groups: readonly TrajectoryGroup[], position: number): void => {
    byScenario[position] = groups;
  };
  await runRollouts(scenarios, rollout, { ...options, onGroups });
  return trajectoryGroups(byScenario.flat());
}

/**
 * Runs rollouts like {@link gatherTrajectoryGroups}, but yields each group as soon as it is complete, in order of completion. Rollouts
 * start with the first `next`; leaving the loop aborts running rollouts and waits for them.
 *
 * The number of unread groups is limited (`maxUnread`): a slow reader slows the rollouts down, so that a run of any length can be written
 * to disk with little memory.
 *
 * @param scenarios - Scenarios; read completely before the first rollout.
 * @param rollout - Function that runs one scenario.
 * @param options - Group size, concurrency, limits and callbacks.
 * @returns The groups; each iteration is a run of its own and throws the errors of {@link gatherTrajectoryGroups}.
 * @throws ArgumentError `E_ARGUMENT` for `maxUnread` below 1.
 * @example
 * ```ts
 * import { environmentRollout } from "whetstone/environment";
 *
 * const rollout = environmentRollout(environment);
 * for await (const group of streamTrajectoryGroups(environment.scenarios.eval, rollout, { policy, groupSize: 8, concurrency: 1000 })) {
 *   console.log(group.rewards);
 * }
 * ```
 */
export function streamTrajectoryGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  options: StreamOptions<S> = {},
): AsyncIterable<TrajectoryGroup> {
  return streamGroups(scenarios, rollout, options);
}

/** Runs {@link streamTrajectoryGroups} with the internal options of the runner. */
export function streamGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  { maxUnread = DEFAULT_MAX_UNREAD, ...options }: StreamOptions<S> & Pick<RolloutsOptions<S>, "createPlayer">,
): AsyncIterable<TrajectoryGroup> {
  checkInteger("maxUnread", maxUnread, 1);
  return {
    [Symbol.asyncIterator]() {
      const link = linkAbort(options.signal);
      // The callback runs when the reader leaves the loop.
      const iterator = pushIterator<TrajectoryGroup>(async () => {
        link.abort(new DOMException("The reader of the stream of groups has left", "AbortError"));
        await running;
      });
      const onGroups = async (groups: readonly TrajectoryGroup[]) => {
        for (const group of groups) {
          await iterator.room(maxUnread, link.signal);
          iterator.push(group);
        }
      };
      const running = runRollouts(scenarios, rollout, { ...options, signal: link.signal, onGroups })
        .then(
          () => iterator.end(),
          (error: unknown) => iterator.fail(error),
        )
        .finally(() => link.dispose());
      return iterator;
    },
  };
}
