/** Options of the commands that train on an environment: flags for common settings, `--set` and `--config` for all. */
import type { Command } from "commander";
import { ArgumentError } from "../../base/errors.ts";
import { BASE_FORMS, integer, jsonObjectArgument, nonNegative, TEMPLATE_KWARGS_DESCRIPTION, TEMPLATE_KWARGS_OPTION } from "../arguments.ts";
import { addBroker, type BrokerFlags } from "../broker.ts";
import { parseSetting, readSettingsFile, withSettings, type NamedValues } from "./read.ts";
import type { TrainSettings } from "./schema.ts";

/** Steps of a run if neither a flag nor the file gives the setting `steps`. */
const STEPS = 20;

/**
 * Setting of each flag, by the flag's name in the parsed options. Only `train` has the flag `--seed`: a sweep has a list of seeds in its
 * file.
 */
export const FLAGS = {
  base: "base",
  loraRank: "loraRank",
  steps: "steps",
  scenarios: "scenariosPerStep",
  groupSize: "groupSize",
  learningRate: "train.learningRate",
  offPolicy: "maxStepsOffPolicy",
  evalEvery: "evaluation.every",
  refill: "refill.maxGroups",
  curriculum: "curriculum.pool",
  replacements: "replacements",
  seed: "seed",
  concurrency: "concurrency",
  workers: "workers",
  chatTemplateKwargs: "chatTemplateKwargs",
} as const;

/**
 * Adds the flags of settings, `--config` and `--set` to a command. Defaults of the flags are shown in the help, and otherwise ignored: a
 * setting that no flag gives has the value of the file, or its own default.
 */
export function addSettings(command: Command): Command {
  const withFlags = command
    .option("--base <model>", `base model of a new model: ${BASE_FORMS}`, "whetstone-tiny")
    .option("--lora-rank <number>", "train an adapter of this rank in a new model (default: train all weights)", integer(1))
    .option("--steps <number>", "training steps of the whole run", integer(1), STEPS)
    .option("--scenarios <number>", "scenarios per step", integer(1), 16)
    .option("--group-size <number>", "rollouts per scenario", integer(2), 8)
    .option("--learning-rate <number>", "learning rate (default: by size of the model and kind of training; printed)", nonNegative)
    .option("--off-policy <number>", "max steps by which rollouts may be ahead of training", integer(0), 0)
    .option("--eval-every <number>", "steps between evaluations on the eval scenarios (default: none)", integer(1))
    .option(
      "--refill <groups>",
      "sample further groups in place of groups with equal rewards; max groups that a step samples (default: none)",
      integer(1),
    )
    .option(
      "--curriculum [scenarios]",
      "sample scenarios by pass rate; number of scenarios to sample from if the environment generates them (default: in order)",
      integer(1),
    )
    .option(
      "--replacements <number>",
      "max new rollouts, with other seeds, in place of a rollout that failed after its retries",
      integer(0),
      0,
    )
    .option("--concurrency <number>", "max concurrent rollouts", integer(1), 64)
    .option("--workers", "leave the rollouts to workers, see `whetstone worker`");
  return addBroker(withFlags)
    .option(TEMPLATE_KWARGS_OPTION, TEMPLATE_KWARGS_DESCRIPTION, jsonObjectArgument)
    .option("--config <file>", "JSON file with settings; flags and --set override it")
    .option("--set <name=value>", "any setting, such as train.klPenaltyCoef=0.02; can be given again", parseSetting);
}

/** Parsed options of {@link addSettings}, without its flags of settings. */
export interface SettingsOptions extends BrokerFlags {
  readonly config?: string;
  readonly set?: NamedValues;
}

/**
 * Returns flag and value of each setting that a flag on the command line gives, by name of the setting. Flags at their defaults are left
 * out.
 */
function flagValues(command: Command): Map<string, { readonly flag: string; readonly value: unknown }> {
  const flagsBySetting = command.options.flatMap((option) => {
    const key = option.attributeName();
    if (!(key in FLAGS) || command.getOptionValueSource(key) !== "cli") return [];
    const value: unknown = command.getOptionValue(key);
    const flag = option.long ?? key;
    // `--curriculum` without a number: the settings of the curriculum keep their defaults.
    const isBareCurriculum = key === "curriculum" && value === true;
    const [setting, settingValue] = isBareCurriculum ? ["curriculum", {}] : [FLAGS[key as keyof typeof FLAGS], value];
    return [[setting, { flag, value: settingValue }] as const];
  });
  return new Map(flagsBySetting);
}

/**
 * Returns the settings of a command line.
 *
 * @throws ArgumentError `E_ARGUMENT` if a flag and `--set` give the same setting.
 * @throws ConfigError `E_CONFIG` for a setting of the file that does not exist or does not accept its value.
 */
export async function settingsOfCommand(command: Command): Promise<TrainSettings & { readonly steps: number }> {
  const { config, set = {} } = command.opts<SettingsOptions>();
  const flags = flagValues(command);
  for (const [name, { flag }] of flags) {
    if (name in set)
      throw new ArgumentError(`\`${flag}\` and \`--set ${name}=…\` give the same setting; expected one of them`, { param: "--set" });
  }
  const fromFlags = Object.fromEntries([...flags].map(([name, { value }]) => [name, value]));
  const fromFile = config === undefined ? {} : await readSettingsFile(config);
  const settings = withSettings(fromFile, { ...fromFlags, ...set });
  return { ...settings, steps: settings.steps ?? STEPS };
}
