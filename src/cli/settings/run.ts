/** Start of a training run for `whetstone train` and for each run of `whetstone sweep`. */
import type { Model } from "../../library/client/index.ts";
import type { Environment, RolloutBroker } from "../../library/environment/index.ts";
import { trainRl, type Tracker, type TrainingRun } from "../../training/train/index.ts";
import { openModel, type Connected, type ModelName } from "../connected.ts";
import type { TrainSettings } from "./schema.ts";

/** Model, environment, directory, trackers and broker of a run. */
export interface RunSubject {
  readonly name: ModelName;
  readonly environment: Environment<unknown>;
  readonly runDir: string;
  readonly trackers?: readonly Tracker[];
  /** Broker that assigns rollouts to workers, if the run has workers; undefined for the service. */
  readonly broker?: RolloutBroker | undefined;
}

/** Opens the model of a run, creating it if it does not exist, and starts the run. */
export async function startRun(
  connected: Connected,
  { name, broker, ...subject }: RunSubject,
  { base = "whetstone-tiny", loraRank, workers, ...settings }: TrainSettings & { readonly steps: number },
): Promise<TrainingRun> {
  const model: Model = await openModel(connected, name, base, loraRank);
  const workersOption = workers === true ? (broker ?? true) : workers;
  return trainRl({ ...settings, ...subject, workers: workersOption, model, signal: connected.signal });
}
