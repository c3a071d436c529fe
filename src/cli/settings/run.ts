import type { Model } from "../../library/client/index.ts";
import type { Environment } from "../../library/environment/index.ts";
import { trainRl, type Tracker, type TrainingRun } from "../../training/train/index.ts";
import { openModel, type Connected, type ModelName } from "../connected.ts";
import type { TrainSettings } from "./schema.ts";

/** Model, environment, directory and trackers of a run. */
export interface RunSubject {
  readonly name: ModelName;
  readonly environment: Environment<unknown>;
  readonly runDir: string;
  readonly trackers?: readonly Tracker[];
}

/** Opens the model of a run, creating it if it does not exist, and starts the run. */
export async function startRun(
  connected: Connected,
  { name, ...subject }: RunSubject,
  { base = "whetstone-tiny", loraRank, ...settings }: TrainSettings & { readonly steps: number },
): Promise<TrainingRun> {
  const model: Model = await openModel(connected, name, base, loraRank);
  return trainRl({ ...settings, ...subject, model, signal: connected.signal });
}
