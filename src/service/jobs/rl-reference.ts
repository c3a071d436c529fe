import type { Logprobs, Row } from "../../engine/port.ts";
import { NotFoundError } from "../../base/errors.ts";
import type { KlReference } from "../../learner/index.ts";
import { checkpointAt } from "../store/checkpoints.ts";
import type { CheckpointRow } from "../store/tables.ts";
import type { JobScope } from "./run-job.ts";
import { loraOf } from "./warm-models.ts";

/**
 * Returns log-probabilities of `rows` under the reference policy of a KL penalty: another checkpoint of the job's model, or its base. The
 * reference is loaded for one forward pass and then unloaded.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the checkpoint does not exist.
 */
export async function referenceLogprobs(
  { context, model, checkpoint, signal }: JobScope,
  rows: readonly Row[],
  reference: KlReference,
): Promise<Logprobs[]> {
  const { engine, store, files } = context;
  let from: CheckpointRow | null = null;
  if (reference.kind !== "base") {
    const step = reference.kind === "step" ? reference.step : Math.max(0, checkpoint.step - reference.steps);
    const found = await checkpointAt(store, model.id, step);
    if (found === undefined) {
      throw new NotFoundError(
        `The KL penalty measures from step ${step}, and the model has no such checkpoint. Name one that exists, and keep it while it is needed`,
        { param: reference.kind === "step" ? "experimental_config.kl_penalty_reference_step" : "experimental_config.kl_penalty_step_lag" },
      );
    }
    from = found.state_dir === null ? null : found;
  }
  const spec = { base: model.base_model, ...loraOf(model), seed: model.seed };
  const handle =
    from === null
      ? await engine.createModel(spec, { signal })
      : await files.useCheckpoint(model, from, (path) => engine.createModel({ ...spec, from: path }, { signal }));
  try {
    return await engine.forward(handle, rows, { signal });
  } finally {
    await engine.unload(handle);
  }
}
