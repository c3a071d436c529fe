/** Option `--tracker` of the commands that run a training. */
import { InvalidArgumentError } from "commander";
import type { Tracker } from "../training/train/index.ts";

/** Tracker by name, as the option selects it. Each module is loaded only if its name is given. */
const TRACKERS: Readonly<Record<string, (address: string | undefined) => Promise<Tracker>>> = {
  csv: async (path) => (await import("../training/trackers/csv.ts")).csvTracker({ path }),
  tensorboard: async (logDir) => (await import("../training/trackers/tensorboard.ts")).tensorboardTracker({ logDir }),
  mlflow: async (url) => (await import("../training/trackers/mlflow.ts")).mlflowTracker({ url }),
  trackio: async (url) => (await import("../training/trackers/trackio.ts")).trackioTracker({ url }),
};

/** Creates the tracker that a value of the option names, with its file, directory or address. */
export type TrackerChoice = () => Promise<Tracker>;

/** Usage of the option. */
export const TRACKER_OPTION = "--tracker <name[=address]>";

/** Description of the option. */
export const TRACKER_DESCRIPTION = "csv[=file], tensorboard[=directory], mlflow[=url] or trackio[=url]; can be given again";

/** Parses a value of the repeatable option. */
export function trackerChoice(text: string, previous: readonly TrackerChoice[]): TrackerChoice[] {
  const [, name = text, address] = /^([^=]*)=(.*)$/su.exec(text) ?? [];
  const create = TRACKERS[name];
  if (create === undefined || address === "")
    throw new InvalidArgumentError(`Expected one of ${Object.keys(TRACKERS).join(", ")}, with an address after = if needed.`);
  return [...previous, () => create(address)];
}
