/** Reference policy of the KL penalty of RL and reinforcement jobs. */
import type { Logprobs, Row } from "../../engine/port.ts";
import { NotFoundError } from "../../base/errors.ts";
import type { KlReference } from "../../learner/index.ts";
import { checkpointAt } from "../store/checkpoints.ts";
import type { CheckpointRow } from "../store/tables.ts";
import type { JobScope } from "./run-job.ts";
import { withReferencePolicy } from "./reference-policy.ts";

/**
 * Returns log-probabilities of `rows` under the reference policy of a KL penalty: another checkpoint of the job's model, or its base. The
 * reference is loaded for one forward pass and then unloaded.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the checkpoint does not exist.
 */
export async function referenceLogprobs(scope: JobScope, rows: readonly Row[], reference: KlReference): Promise<Logprobs[]> {
  const checkpoint = reference.kind === "base" ? null : await referenceCheckpoint(scope, reference);
  const { context, signal } = scope;
  return withReferencePolicy(scope, checkpoint, (handle) => context.engine.forward(handle, rows, { signal }));
}

/**
 * Returns the checkpoint of a reference: a fixed step of the model (`step`), or `steps` steps before the job's checkpoint (`lag`).
 *
 * @throws NotFoundError `E_NOT_FOUND` if the model has no such checkpoint.
 */
async function referenceCheckpoint(
  { context, model, checkpoint }: JobScope,
  reference: Exclude<KlReference, { readonly kind: "base" }>,
): Promise<CheckpointRow> {
  const step = reference.kind === "step" ? reference.step : Math.max(0, checkpoint.step - reference.steps);
  const checkpointOfStep = await checkpointAt(context.store, model.id, step);
  if (checkpointOfStep !== undefined) return checkpointOfStep;
  throw new NotFoundError(
    `The KL penalty measures from step ${step}, and the model has no such checkpoint. Name one that exists, and keep it while it is needed`,
    { param: reference.kind === "step" ? "experimental_config.kl_penalty_reference_step" : "experimental_config.kl_penalty_step_lag" },
  );
}
