/** Conversion of a preference job's configuration to settings. */

import type { PreferenceConfig } from "../base/schema/index.ts";
import { planSteps, type TrainingPlan } from "./plan.ts";
import type { PreferenceObjective } from "./preference.ts";
import { stepSettings, type StepSettings } from "./step-settings.ts";

// Defaults of TRL's `DPOConfig`.
/** Default pairs per optimizer step. */
const DEFAULT_BATCH_SIZE = 8;
/** Default of `learning_rate`. */
const DEFAULT_LEARNING_RATE = 1e-6;
/** Default of `beta`. */
const DEFAULT_BETA = 0.1;

/** Reference policy of preference training: the base model, the checkpoint that the job starts from, or another checkpoint of the model. */
export type PreferenceReference = { readonly kind: "base" } | { readonly kind: "start" } | { readonly kind: "step"; readonly step: number };

/** Preference configuration with all defaults filled in. */
export interface PreferenceSettings extends StepSettings {
  readonly objective: PreferenceObjective;
  readonly reference: PreferenceReference;
}

/**
 * Checks a configuration that the schema has already accepted, and fills in the defaults: batch size 8, learning rate 1e-6, β 0.1, no label
 * smoothing, sums over tokens, the base model as reference, and the defaults of `stepSettings`.
 *
 * @param config - Configuration of the job; null and absent mean the default.
 * @throws ArgumentError `E_ARGUMENT` for settings that contradict each other.
 */
export function checkPreferenceConfig(config?: PreferenceConfig | null): PreferenceSettings {
  const requested = config ?? {};
  const learningRate = requested.learning_rate ?? DEFAULT_LEARNING_RATE;
  return {
    ...stepSettings(requested, { batchSize: requested.batch_size ?? DEFAULT_BATCH_SIZE, learningRate, path: "config" }),
    objective: {
      beta: requested.beta ?? DEFAULT_BETA,
      labelSmoothing: requested.label_smoothing ?? 0,
      normalizesLength: requested.length_normalization ?? false,
    },
    reference: referenceOf(requested.reference_step ?? null),
  };
}

/**
 * Plans the steps of a preference job, see `planSteps`.
 *
 * @param pairCount - Number of pairs in the data, at least 1; at least 2 with a `validation_split`.
 * @throws ArgumentError `E_ARGUMENT` as `planSteps` and {@link checkPreferenceConfig}.
 */
export function planPreferences(pairCount: number, config?: PreferenceConfig | null): TrainingPlan {
  return planSteps(pairCount, checkPreferenceConfig(config));
}

/** Converts the setting `reference_step`. */
function referenceOf(step: number | "start" | null): PreferenceReference {
  if (step === null) return { kind: "base" };
  return step === "start" ? { kind: "start" } : { kind: "step", step };
}
