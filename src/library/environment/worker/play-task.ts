/** Play and delivery of one leased rollout. */
import type { RolloutOutcome } from "../../../base/schema/index.ts";
import { backoffMs } from "../../../base/util/backoff.ts";
import { delay } from "../../../base/util/delay.ts";
import { HttpError, type LeasedRolloutInfo, type RolloutPlanInfo, type RolloutTaskInfo, type Service } from "../../client/index.ts";
import { servedPolicy } from "../../client/served-policy.ts";
import { Attempts } from "../../rollout/attempts.ts";
import { toException } from "../../rollout/failure.ts";
import type { Rollout } from "../../rollout/options.ts";
import type { RateLimiter } from "../../rollout/rate-limiter.ts";
import { isUnavailable, patientRetries } from "../../rollout/unavailable.ts";

/** Context of {@link playTask}. */
export interface TaskContext {
  readonly service: Pick<Service, "rolloutPlans" | "chat">;
  readonly rollout: Rollout<unknown>;
  readonly rateLimiter: RateLimiter;
  /** Aborts when the lease is lost or the worker ends. */
  readonly signal: AbortSignal;
  /** Called with each error of an unavailable service. */
  readonly onUnavailable: (error: Error) => void;
}

/**
 * Plays a leased rollout as a run in one process would: with the seed, the retries and the replacements of its plan.
 *
 * @returns its outcome in the wire's form.
 * @throws the signal's reason.
 */
export async function playTask(
  { service, rollout, rateLimiter, signal, onUnavailable }: TaskContext,
  { group, index, scenario }: LeasedRolloutInfo,
  plan: RolloutPlanInfo,
): Promise<RolloutOutcome> {
  const attempts = new Attempts<unknown>({
    rollout,
    options: {
      policy: servedPolicy(service, plan.policy, plan.policyStep),
      temperature: plan.temperature,
      chatTemplateKwargs: plan.chatTemplateKwargs ?? undefined,
      timeoutMs: plan.timeoutMs ?? undefined,
      retries: patientRetries(plan.retries, onUnavailable),
      replacements: plan.replacements,
    },
    groupSize: plan.groupSize,
    seed: plan.seed,
    rateLimiter,
    signal,
    onEvent: () => undefined,
  });
  const { trajectory, exception, replaced, attempt } = await attempts.play(scenario, group, index);
  const result = trajectory === undefined ? { exception } : { trajectory: trajectory.toJSON() };
  return { ...result, replaced: [...replaced], attempt };
}

/**
 * Delivers an outcome, and repeats the request while the service is unavailable. An outcome that the service rejects, for example because
 * it is too large, is delivered as a failure.
 *
 * @returns the finished task; null if the lease is lost, or the plan is cancelled or deleted.
 * @throws the signal's reason, and the error of a failure that the service rejects.
 */
export async function deliverTask(
  { service, signal, onUnavailable }: Pick<TaskContext, "service" | "signal" | "onUnavailable">,
  task: LeasedRolloutInfo,
  outcome: RolloutOutcome,
): Promise<RolloutTaskInfo | null> {
  let delivered = outcome;
  /** Consecutive requests that an unavailable service did not answer. */
  let failures = 0;
  for (;;) {
    try {
      return await service.rolloutPlans.deliver(task, delivered, { signal });
    } catch (error) {
      signal.throwIfAborted();
      const status = error instanceof HttpError ? error.status : null;
      if (status === 404 || status === 409) return null;
      // The service rejects the outcome, but not yet the failure that replaces it.
      if ((status === 413 || status === 422) && delivered === outcome) {
        delivered = { exception: toException(error) };
        continue;
      }
      // 507: the disk of the service is full. The rollout need not be played again when there is room.
      if (!isUnavailable(error) && status !== 507) throw error;
      onUnavailable(error as Error);
      await delay(backoffMs(failures), { signal });
      failures++;
    }
  }
}
