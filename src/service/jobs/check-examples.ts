/** Checks of a request for an SFT or preference job before the job is accepted: they read all its data, and fail as the job would. */
import type { Engine } from "../../engine/port.ts";
import { checkSftConfig, planPreferences, planSft, type TrainingPlan } from "../../learner/index.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { PreferenceJobConfig, SftJobConfig } from "../store/job-configs.ts";
import type { ModelRow } from "../store/tables.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { useExamples, type ExampleKind } from "../training-data/example-data.ts";
import type { DataWork } from "../training-data/data-work.ts";

/** Parts of the service that the checks need. */
export interface CheckContext {
  readonly engine: Engine;
  readonly data: DataWork;
  readonly files: Pick<StoredFiles, "useBlobs">;
}

/** Model and data of a request. */
export interface RequestedData {
  readonly model: ModelRow;
  readonly artifact: StoredArtifact;
  /** Validation artifact, and the request field that names it; null if none is given. */
  readonly validation: { readonly artifact: StoredArtifact; readonly param: string } | null;
}

/** Reads the data of an SFT request, and returns the job's plan. */
export async function checkSftData(
  context: CheckContext,
  requested: RequestedData,
  { config, experimental_config }: SftJobConfig,
): Promise<TrainingPlan> {
  const { assistantTurns } = checkSftConfig(config, experimental_config);
  return planSft(await readAndCount(context, requested, { name: "sft", assistantTurns }), config, experimental_config);
}

/** Reads the data of a preference request, and returns the job's plan. */
export async function checkPreferenceData(
  context: CheckContext,
  requested: RequestedData,
  { config }: PreferenceJobConfig,
): Promise<TrainingPlan> {
  return planPreferences(await readAndCount(context, requested, { name: "preference" }), config);
}

/** Reads training and validation data, which checks them, and returns the number of training examples. */
async function readAndCount(
  { engine, data, files }: CheckContext,
  { model, artifact, validation }: RequestedData,
  kind: ExampleKind,
): Promise<number> {
  const base = await engine.describeBase(model.base_model);
  const options = { base, files, kind };
  const { examples } = await useExamples(artifact, options, (source) => data.examples(source));
  if (validation !== null)
    await useExamples(validation.artifact, { ...options, param: validation.param }, (source) => data.examples(source));
  return examples.length;
}
