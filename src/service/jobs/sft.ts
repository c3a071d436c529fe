/** Trainer of SFT jobs. The loop over the steps is in `dataset-steps.ts`. */
import { buildSftBatch, checkSftConfig, planSft, type TrainingPlan, type TokenSequence } from "../../learner/index.ts";
import { getArtifact } from "../store/artifacts.ts";
import { runDatasetSteps, summarizeSteps, type NumberedStep } from "./dataset-steps.ts";
import { fineTuningResults, type StepResults } from "./fine-tuning-results.ts";
import { requireFiniteLoss, requireFiniteNorm, requireUsableModel } from "./finite-step.ts";
import { deviceMetrics, paddingShare, threadMetrics } from "./metrics.ts";
import type { JobScope } from "./run-job.ts";
import type { Trained } from "./states.ts";
import { tokenAccuracy } from "./token-accuracy.ts";
import { useExamples, type ExampleData } from "../training-data/example-data.ts";
import type { SftJobConfig } from "../store/job-configs.ts";

/** Data and settings of an SFT job. */
interface SftInputs {
  readonly data: ExampleData;
  readonly plan: TrainingPlan;
  /** Sequences of the validation examples; empty without validation. */
  readonly validation: readonly TokenSequence[];
  readonly validationExamples: number;
  /** Results for the fine-tuning interface; null for jobs of the job interface. */
  readonly results: StepResults | null;
}

/** Metrics of steps that are summed over a job, or of which the checkpoint has the mean. */
const SUMMARY = { sums: ["num_trajectories", "num_tokens", "num_trainable_tokens"], means: ["loss", "grad_norm"] };

/** Trains one optimizer step per batch, starting after the last committed step. */
export async function runSftSteps(scope: JobScope): Promise<Trained> {
  const inputs = await readInputs(scope);
  const { data, plan, validation, validationExamples, results } = inputs;
  const counts = {
    num_dropped_trajectories: data.droppedExamples,
    num_dropped_sequences: data.droppedSequences,
    num_dropped_tokens: data.droppedTokens,
    ...(validationExamples === 0 ? {} : { num_validation_trajectories: validationExamples }),
  };
  await runDatasetSteps(scope, {
    plan,
    data,
    nouns: { one: "example", many: "examples" },
    counts,
    results,
    begin: async () => ({
      train: (step) => trainStep(scope, data, step),
      validate: validation.length === 0 ? null : () => validate(scope, inputs),
    }),
  });
  const metrics = { ...(await summarizeSteps(scope.context.store, scope.job.id, SUMMARY)), ...counts };
  return { metrics, events: [], ...results?.atEnd(plan.stepCount) };
}

/** Reads the data of a job. Without a validation artifact, the examples that the plan holds out are the validation data. */
async function readInputs(scope: JobScope): Promise<SftInputs> {
  const { context, job, base, signal } = scope;
  const { store, data: reader, files } = context;
  const { artifact_id, validation_artifact_id, config, experimental_config, fine_tuning } = JSON.parse(job.config) as SftJobConfig;
  const { assistantTurns } = checkSftConfig(config, experimental_config);
  const kind = { name: "sft", assistantTurns } as const;
  const read = async (id: string) =>
    useExamples(await getArtifact(store, id), { base, files, kind }, (source) => reader.examples(source, signal));
  const data = await read(artifact_id);
  const plan = planSft(data.examples.length, config, experimental_config);
  const validation =
    validation_artifact_id === undefined
      ? plan.heldOut.map((index) => data.examples[index] ?? [])
      : (await read(validation_artifact_id)).examples;
  const results = fine_tuning === undefined ? null : fineTuningResults(scope, fine_tuning);
  return { data, plan, validation: validation.flat(), validationExamples: validation.length, results };
}

/** Trains one optimizer step and returns its metrics. The weights are checked after the last step. */
async function trainStep(
  { context, handle, base, signal }: JobScope,
  data: ExampleData,
  { step, number, isLast }: NumberedStep,
): Promise<Readonly<Record<string, number>>> {
  const batch = buildSftBatch(step.examples.flatMap((example) => data.examples[example] ?? []));
  const startedMs = performance.now();
  const { logprobs, metrics } = await context.engine.forwardBackward(handle, batch.rows, batch.loss, { signal });
  requireFiniteLoss(metrics);
  const { gradNorm } = await context.engine.optimStep(handle, step.adam, { signal });
  requireFiniteNorm(gradNorm);
  const seconds = (performance.now() - startedMs) / 1000;
  if (isLast)
    await requireUsableModel({ engine: context.engine, handle, vocabularySize: base.vocabularySize, signal }, batch.rows, logprobs);
  return {
    gradient_step: number,
    loss: metrics.loss,
    grad_norm: gradNorm,
    learning_rate: step.adam.learningRate,
    num_trajectories: step.examples.length,
    num_tokens: batch.tokens,
    num_trainable_tokens: batch.trainedTokens,
    tokens_per_second: batch.tokens / Math.max(seconds, 1e-9),
    "policy/entropy": metrics.tokens === 0 ? 0 : metrics.entropy / metrics.tokens,
    "tokens/trained": metrics.tokens,
    "tokens/dropped": data.droppedTokens,
    "tokens/padding_share": paddingShare(metrics),
    ...threadMetrics(metrics),
    ...deviceMetrics(metrics),
  };
}

/**
 * Computes the loss on validation examples with the current weights, averaged like the loss of a training step; for the fine-tuning
 * interface also the token accuracy, which needs a second pass.
 */
async function validate(scope: JobScope, { validation, results }: SftInputs): Promise<Record<string, number>> {
  const { context, handle, signal } = scope;
  const { rows, trainedTokens } = buildSftBatch(validation);
  const logprobs = await context.engine.forward(handle, rows, { signal });
  let loss = 0;
  for (const [index, { weights }] of rows.entries()) {
    for (let t = 0; t < weights.length; t++) if (weights[t] !== 0) loss -= (weights[t] as number) * (logprobs[index]?.[t] ?? NaN);
  }
  const accuracy = results === null ? null : await tokenAccuracy(scope, validation);
  return {
    "validation/loss": loss,
    "validation/tokens": trainedTokens,
    ...(accuracy === null ? {} : { "validation/token_accuracy": accuracy }),
  };
}
