/** Trainer of preference jobs. The loop over the steps is in `dataset-steps.ts`, the loss in `learner/preference.ts`. */
import {
  checkPreferenceConfig,
  pairSums,
  planPreferences,
  preferenceGradient,
  preferenceRows,
  type PairValues,
  type PreferenceObjective,
  type SequencePair,
  type TokenSequence,
  type TrainingPlan,
} from "../../learner/index.ts";
import { itemAt, zip } from "../../base/util/values.ts";
import { getArtifact } from "../store/artifacts.ts";
import type { PreferenceJobConfig } from "../store/job-configs.ts";
import { useExamples, type ExampleData } from "../training-data/example-data.ts";
import { fineTuningResults } from "./fine-tuning-results.ts";
import { runDatasetSteps, summarizeSteps, type NumberedStep } from "./dataset-steps.ts";
import { requireFiniteLoss, requireFiniteNorm, requireFiniteStep, requireUsableModel } from "./finite-step.ts";
import { deviceMetrics, paddingShare, threadMetrics } from "./metrics.ts";
import { measurePairs } from "./pair-sums.ts";
import { referenceSums } from "./preference-reference.ts";
import type { JobScope } from "./run-job.ts";
import type { Trained } from "./states.ts";

/** Pair with its log-probabilities under the reference policy. */
interface ReferencedPair extends SequencePair {
  readonly reference: PairValues;
}

/** Pairs of a preference job, without reference values. */
interface JobPairs {
  /** Training data, held-out pairs included. */
  readonly data: ExampleData;
  readonly plan: TrainingPlan;
  /** Pairs of the training data, then pairs of the validation artifact. */
  readonly allPairs: readonly SequencePair[];
}

/** Pairs of a preference job with their reference values. */
interface ReferencedPairs {
  readonly data: ExampleData;
  /** Pairs of the training data. */
  readonly pairs: readonly ReferencedPair[];
  /** Validation pairs; empty without validation. */
  readonly validation: readonly ReferencedPair[];
  readonly objective: PreferenceObjective;
}

/** Metrics of steps that are summed over a job, or of which the checkpoint has the mean. */
const SUMMARY = {
  sums: ["num_pairs", "num_tokens", "num_trainable_tokens"],
  means: ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"],
};

/** Trains one optimizer step per batch of pairs, starting after the last committed step. */
export async function runPreferenceSteps(scope: JobScope): Promise<Trained> {
  const { config, fine_tuning } = JSON.parse(scope.job.config) as PreferenceJobConfig;
  const { objective, reference } = checkPreferenceConfig(config);
  const results = fine_tuning === undefined ? null : fineTuningResults(scope, fine_tuning);
  const jobPairs = await readPairs(scope);
  const { data, plan, allPairs } = jobPairs;
  const artifactValidationCount = allPairs.length - data.examples.length;
  const validationCount = plan.heldOut.length + artifactValidationCount;
  const counts = {
    num_dropped_pairs: data.droppedExamples,
    num_dropped_tokens: data.droppedTokens,
    ...(validationCount === 0 ? {} : { num_validation_pairs: validationCount }),
  };
  await runDatasetSteps(scope, {
    plan,
    data,
    nouns: { one: "pair", many: "pairs" },
    counts,
    results,
    begin: async () => {
      const sums = await requireFiniteStep("The reference policy", () => referenceSums(scope, allPairs, reference));
      const referencedPairs = addReferenceValues(jobPairs, sums, objective);
      return {
        train: (step) => trainStep(scope, referencedPairs, step),
        validate: validationCount === 0 ? null : () => validate(scope, referencedPairs),
      };
    },
  });
  const metrics = { ...(await summarizeSteps(scope.context.store, scope.job.id, SUMMARY)), ...counts };
  return { metrics, events: [], ...results?.atEnd(plan.stepCount) };
}

/** Reads the artifacts of a job and plans its steps. */
async function readPairs({ context, job, base, signal }: JobScope): Promise<JobPairs> {
  const { store, data: reader, files } = context;
  const { artifact_id, validation_artifact_id, config } = JSON.parse(job.config) as PreferenceJobConfig;
  const kind = { name: "preference" } as const;
  const read = async (id: string) =>
    useExamples(await getArtifact(store, id), { base, files, kind }, (source) => reader.examples(source, signal));
  const data = await read(artifact_id);
  const validationExamples = validation_artifact_id === undefined ? [] : (await read(validation_artifact_id)).examples;
  // Each example of this kind has two sequences: the chosen one, then the rejected one.
  const pairOf = (sequences: readonly TokenSequence[]) => ({ chosen: itemAt(sequences, 0), rejected: itemAt(sequences, 1) });
  const allPairs = [...data.examples, ...validationExamples].map(pairOf);
  return { data, plan: planPreferences(data.examples.length, config), allPairs };
}

/**
 * Adds the reference values to the pairs. The validation pairs are the ones that the plan holds out, or the ones of the validation
 * artifact: the configuration of a job has only one of the two.
 */
function addReferenceValues(
  { data, plan, allPairs }: JobPairs,
  sums: readonly PairValues[],
  objective: PreferenceObjective,
): ReferencedPairs {
  const referenced = zip(allPairs, sums).map(([pair, reference]) => ({ ...pair, reference }));
  const pairs = referenced.slice(0, data.examples.length);
  const heldOut = plan.heldOut.map((index) => itemAt(pairs, index));
  return { data, pairs, validation: [...heldOut, ...referenced.slice(data.examples.length)], objective };
}

/** Trains one optimizer step and returns its metrics. The weights are checked after the last step. */
async function trainStep(
  { context, handle, base, signal }: JobScope,
  { data, pairs, objective }: ReferencedPairs,
  { step, number, isLast }: NumberedStep,
): Promise<Readonly<Record<string, number>>> {
  const { engine } = context;
  const trained = step.examples.map((index) => itemAt(pairs, index));
  const batch = preferenceRows(trained);
  const startedMs = performance.now();
  const logprobs = await engine.forward(handle, batch.rows, { signal });
  const sums = { policy: pairSums(batch.rows, logprobs), reference: trained.map(({ reference }) => reference) };
  const gradient = preferenceGradient(batch, sums, objective);
  requireFiniteLoss(gradient.metrics);
  const { metrics } = await engine.forwardBackward(handle, gradient.rows, gradient.loss, { signal });
  const { gradNorm } = await engine.optimStep(handle, step.adam, { signal });
  requireFiniteNorm(gradNorm);
  const seconds = (performance.now() - startedMs) / 1000;
  if (isLast) await requireUsableModel({ engine, handle, vocabularySize: base.vocabularySize, signal }, batch.rows, logprobs);
  return {
    gradient_step: number,
    ...gradient.metrics,
    grad_norm: gradNorm,
    learning_rate: step.adam.learningRate,
    num_pairs: trained.length,
    num_tokens: batch.tokens,
    num_trainable_tokens: batch.trainedTokens,
    tokens_per_second: batch.tokens / Math.max(seconds, 1e-9),
    "policy/entropy": metrics.tokens === 0 ? 0 : metrics.entropy / metrics.tokens,
    "tokens/trained": batch.trainedTokens,
    "tokens/dropped": data.droppedTokens,
    "tokens/padding_share": paddingShare(metrics),
    ...threadMetrics(metrics),
    ...deviceMetrics(metrics),
  };
}

/** Computes the metrics of the validation pairs with the current weights, like the metrics of a training step. */
async function validate(
  { context, handle, signal }: JobScope,
  { validation, objective }: ReferencedPairs,
): Promise<Record<string, number>> {
  const policy = await measurePairs({ engine: context.engine, handle, signal }, validation);
  const batch = preferenceRows(validation);
  const { metrics } = preferenceGradient(batch, { policy, reference: validation.map(({ reference }) => reference) }, objective);
  const prefixed = Object.entries(metrics).map(([name, value]) => [`validation/${name}`, value] as const);
  return { ...Object.fromEntries(prefixed), "validation/tokens": batch.trainedTokens };
}
