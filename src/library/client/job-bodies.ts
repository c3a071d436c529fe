/** Bodies of the requests that create jobs over a dataset, and the options of all jobs by their wire paths. */
import {
  preferenceConfig,
  rlConfig,
  sftConfig,
  sftExperimentalConfig,
  type CreatePreferenceJobRequest,
  type CreateSftJobRequest,
} from "../../base/schema/index.ts";
import { optionNames } from "./option-names.ts";
import { optionsToWire } from "./options.ts";
import type { PreferenceOptions, SftOptions } from "./wire.ts";

/** Dataset of a supervised job: an address `artifact:///entity/project/name:vN`, or the result of `uploadDataset`. */
export type SftDataset =
  | string
  | {
      /** Address of the training data. */
      readonly url: string;
      /** Address of the validation data; null = none. */
      readonly validationUrl: string | null;
    };

/** Dataset of a preference job: an address `artifact:///entity/project/name:vN`, or the result of `uploadPreferences`. */
export type PreferenceDataset = SftDataset;

/** Wire path and option of the dataset; the option is a positional argument. */
const DATASET = ["training_data_url", "dataset"] as const;

/** Options of `Model.train` by their wire paths, to name them in errors of the service. */
export const RL_NAMES = optionNames(rlConfig, "experimental_config.");
/** Options of `Model.trainSft` by their wire paths. */
export const SFT_NAMES = new Map([
  ...optionNames(sftConfig, "config."),
  ...optionNames(sftExperimentalConfig, "experimental_config."),
  DATASET,
]);
/** Options of `Model.trainPreferences` by their wire paths. */
export const PREFERENCE_NAMES = new Map([...optionNames(preferenceConfig, "config."), DATASET]);

/** Returns the body of an SFT job. @throws ArgumentError `E_ARGUMENT` for an invalid setting. */
export function sftBody(modelId: string, dataset: SftDataset, settings: SftOptions): CreateSftJobRequest {
  const { url, options } = withValidation(dataset, settings);
  const fields = optionsToWire(sftConfig.extend(sftExperimentalConfig.shape), options);
  const config = sftConfig.strip().parse(fields);
  const experimental = sftExperimentalConfig.strip().parse(fields);
  return {
    model_id: modelId,
    training_data_url: url,
    config,
    // The field is omitted when empty, because a service without the extensions may reject it.
    ...(Object.keys(experimental).length === 0 ? {} : { experimental_config: experimental }),
  };
}

/** Returns the body of a preference job. @throws ArgumentError `E_ARGUMENT` for an invalid setting. */
export function preferenceBody(modelId: string, dataset: PreferenceDataset, settings: PreferenceOptions): CreatePreferenceJobRequest {
  const { url, options } = withValidation(dataset, settings);
  return { model_id: modelId, training_data_url: url, config: optionsToWire(preferenceConfig, options) };
}

/**
 * Returns the address of the training data, and the settings with the validation data of the dataset. Settings that name validation data of
 * their own, or split it off the training data, are unchanged.
 */
function withValidation<T extends Pick<SftOptions, "validationDataUrl" | "validationSplit">>(
  dataset: SftDataset,
  settings: T,
): { readonly url: string; readonly options: T & Pick<SftOptions, "validationDataUrl"> } {
  const { url, validationUrl } = typeof dataset === "string" ? { url: dataset, validationUrl: null } : dataset;
  const isSplitOff = settings.validationSplit !== undefined;
  const datasetDefault = isSplitOff ? undefined : (validationUrl ?? undefined);
  const { validationDataUrl = datasetDefault } = settings;
  return { url, options: { ...settings, validationDataUrl } };
}
