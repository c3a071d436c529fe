/** Stored requests of training jobs, as JSON in the column `config`. */
import type { RlConfig, SftConfig, SftExperimentalConfig } from "../../base/schema/index.ts";
import type { Finding } from "../../base/trajectory/findings.ts";

/** Stored request of an SFT job. */
export interface SftJobConfig {
  readonly artifact_id: string;
  readonly config: SftConfig | null;
  readonly experimental_config: SftExperimentalConfig | null;
  /** Identifier of the artifact in `validation_data_url`. */
  readonly validation_artifact_id?: string | undefined;
}

/** Stored request of an RL job, without its groups. */
export interface RlJobConfig {
  readonly experimental_config: RlConfig | null;
  /** Preflight findings at the creation of the job. */
  readonly warnings?: readonly Finding[];
}
