import { trajectoryGroups, type TrajectoryGroup, type TrajectoryGroups } from "../trajectory/index.ts";
import { linkAbort } from "../util/abort.ts";
import { pushIterator } from "../util/push-iterator.ts";
import { checkInteger } from "./check-options.ts";
import type { GatherOptions, Rollout, StreamOptions } from "./options.ts";
import { runRollouts } from "./runner.ts";

/** As many as a reader may fall behind before the rollouts wait for it. */
const UNREAD_GROUPS = 64;

/**
 * Plays every scenario `groupSize` times and gathers the trajectories into groups, one per scenario, in the scenarios' order.
 *
 * A failed rollout is data: it is recorded in its group's `exceptions`. Over the budget everything is aborted, and the
 * call rejects once all running rollouts have settled; a rollout that ignores its signal is waited for.
 *
 * @returns The groups, with `stats` over all of them.
 * @throws ArgumentError `E_ARGUMENT` before anything runs for an option outside its bounds, or when a rollout returns no finished trajectory.
 * @throws TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS`.
 * @throws the signal's reason, or what `onProgress` or `afterEach` threw.
 * @example
 * ```ts
 * const groups = await gatherTrajectoryGroups(scenarios, async (scenario, { signal, seed }) => {
 *   const t = trajectory({ messages: [{ role: "user", content: scenario.prompt }] });
 *   await t.sample(policy, { temperature: 1, seed, signal });
 *   return t.finish({ reward: t.lastText === scenario.answer ? 1 : 0 });
 * }, { groupSize: 8, concurrency: 64, timeoutMs: 30_000, maxExceptions: 0.05 });
 * console.log(groups.stats.reward.mean);
 * ```
 */
export async function gatherTrajectoryGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  options: GatherOptions<S> = {},
): Promise<TrajectoryGroups> {
  const byScenario: (readonly TrajectoryGroup[])[] = [];
  const onGroups = (groups: readonly TrajectoryGroup[], position: number) => void (byScenario[position] = groups);
  await runRollouts(scenarios, rollout, { ...options, onGroups });
  return trajectoryGroups(byScenario.flat());
}

/**
 * As {@link gatherTrajectoryGroups}, but gives each group as soon as it is complete, in the order they end. Rollouts start
 * with the first `next`; leaving the loop aborts what still runs and waits for it.
 *
 * Groups that nobody has read yet are bounded (`maxUnread`): a slow reader slows the rollouts down, so that a run of any length
 * can be written to disk in little memory.
 *
 * @example
 * ```ts
 * for await (const group of streamTrajectoryGroups(scenarios, rollout, { groupSize: 8, concurrency: 1000, policy })) {
 *   await file.write(group);
 * }
 * ```
 */
export function streamTrajectoryGroups<S>(
  scenarios: Iterable<S>,
  rollout: Rollout<S>,
  { maxUnread = UNREAD_GROUPS, ...options }: StreamOptions<S> = {},
): AsyncIterable<TrajectoryGroup> {
  checkInteger("maxUnread", maxUnread, 1);
  return {
    [Symbol.asyncIterator]() {
      const link = linkAbort(options.signal);
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
