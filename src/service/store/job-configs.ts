/** Stored requests of training jobs, as JSON in the column `config`. */
import type { PreferenceConfig, RlConfig, SftConfig, SftExperimentalConfig } from "../../base/schema/index.ts";
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
