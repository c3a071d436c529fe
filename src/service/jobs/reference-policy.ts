/** Reference policies of preference and RL jobs. */
import type { ModelHandle } from "../../engine/port.ts";
import type { CheckpointRow } from "../store/tables.ts";
import type { JobScope } from "./run-job.ts";
import { loraOf } from "./warm-models.ts";

/**
 * Loads a reference policy as a model, and unloads it after `use`.
 *
 * @param checkpoint - Checkpoint of the job's model; null for its base model.
 * @returns the result of `use`.
 */
export async function withReferencePolicy<T>(
  { context, model, signal }: Pick<JobScope, "context" | "model" | "signal">,
  checkpoint: CheckpointRow | null,
  use: (handle: ModelHandle) => Promise<T>,
): Promise<T> {
  const { engine, files } = context;
  const spec = { base: model.base_model, ...loraOf(model), seed: model.seed };
  // A checkpoint without files is the base model.
  const handle =
    checkpoint === null || checkpoint.state_dir === null
      ? await engine.createModel(spec, { signal })
      : await files.useCheckpoint(model, checkpoint, (path) => engine.createModel({ ...spec, from: path }, { signal }));
  try {
    return await use(handle);
  } finally {
    await engine.unload(handle);
  }
}
