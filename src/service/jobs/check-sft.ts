import type { Engine } from "../../engine/port.ts";
import { checkSftConfig, planSft, type SftPlan } from "../../learner/index.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { SftJobConfig } from "../store/job-configs.ts";
import type { ModelRow } from "../store/tables.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { sftSource, VALIDATION_PARAM } from "../training-data/sft-data.ts";
import type { DataWork } from "../training-data/data-work.ts";

interface SftRequest {
  readonly model: ModelRow;
  readonly artifact: StoredArtifact;
  /** Validation artifact; null if none is given. */
  readonly validation: StoredArtifact | null;
  readonly config: SftJobConfig;
}

/** Runs all checks of an SFT request that are possible before its job is accepted, and returns the job's plan. */
export async function checkSftData(
  { engine, data, files }: { readonly engine: Engine; readonly data: DataWork; readonly files: Pick<StoredFiles, "blobPath"> },
  { model, artifact, validation, config }: SftRequest,
): Promise<SftPlan> {
  const { assistantTurns } = checkSftConfig(config.config, config.experimental_config);
  const base = await engine.describeBase(model.base_model);
  const options = { base, files, assistantTurns };
  const { examples } = await data.sftData(await sftSource(artifact, options));
  if (validation !== null) await data.sftData(await sftSource(validation, { ...options, param: VALIDATION_PARAM }));
  return planSft(examples.length, config.config, config.experimental_config);
}
