/** Stored requests of training jobs, as JSON in the column `config`. */
import type { Grader, JsonObject, PreferenceConfig, RlConfig, SftConfig, SftExperimentalConfig } from "../../base/schema/index.ts";
import type { JobRow } from "./tables.ts";
import type { Finding } from "../../base/trajectory/findings.ts";

/** Stored request of an SFT job. */
export interface SftJobConfig {
  readonly artifact_id: string;
  readonly config: SftConfig | null;
  readonly experimental_config: SftExperimentalConfig | null;
  /** Identifier of the artifact in `validation_data_url`. */
  readonly validation_artifact_id?: string | undefined;
  /** Results for the fine-tuning interface; absent for jobs of the job interface. */
  readonly fine_tuning?: FineTuningResults | undefined;
}

/** Results that a training job makes for the fine-tuning job that it runs. */
export interface FineTuningResults {
  /** Name of the final model, `ft:…`. */
  readonly model: string;
  /** Numbers of the optimizer steps, from 1, after which a checkpoint is added. The last step is not among them. */
  readonly checkpoint_steps: readonly number[];
}

/** Stored request of a preference job. */
export interface PreferenceJobConfig {
  readonly artifact_id: string;
  readonly config: PreferenceConfig | null;
  /** Identifier of the artifact in `validation_data_url`. */
  readonly validation_artifact_id?: string | undefined;
  /** Results for the fine-tuning interface; absent for jobs of the job interface. */
  readonly fine_tuning?: FineTuningResults | undefined;
}

/** Stored request of an RL job, without its groups. */
export interface RlJobConfig {
  readonly experimental_config: RlConfig | null;
  /** Preflight findings at the creation of the job. */
  readonly warnings?: readonly Finding[];
}

/** Stored request of an RL job that makes its own rollouts. */
export interface ReinforcementJobConfig extends RlJobConfig {
  readonly artifact_id: string;
  readonly validation_artifact_id?: string | undefined;
  readonly fine_tuning: FineTuningResults;
  readonly reinforcement: ReinforcementSettings;
}

/** Rollouts of a reinforcement job. */
export interface ReinforcementSettings {
  readonly grader: Grader;
  /** Seed of the order of the rows and of all samples. */
  readonly seed: number;
  readonly epochs: number;
  /** Rows per optimizer step. */
  readonly batch_size: number;
  /** Samples per row; their rewards are compared with each other. */
  readonly group_size: number;
  /** Optimizer steps between two validations; a validation also follows the last step. */
  readonly eval_interval: number;
  /** Samples per row of a validation. */
  readonly eval_samples: number;
  /** Members of every request: form and effort of the answers. */
  readonly request: JsonObject;
  /** Entity of the models that the grader may ask; null = all. @default null, in jobs created before keys had entities */
  readonly visible_entity?: string | null | undefined;
}

/** Whether a job makes its own rollouts. */
export function isReinforcement({ type, config }: Pick<JobRow, "type" | "config">): boolean {
  return type === "rl" && "reinforcement" in (JSON.parse(config) as object);
}
