import { Command, Option } from "commander";
import { evaluate } from "../environment/index.ts";
import type { JsonObject } from "../schema/index.ts";
import { formatInterval, type OutputOptions, printResult } from "./output.ts";
import { BASE_FORMS, integer, jsonObject, modelName, positive, TEMPLATE_KWARGS_DESCRIPTION, TEMPLATE_KWARGS_OPTION } from "./arguments.ts";
import { basePolicy, trainedModel, trainedPolicy, withService, type ModelName } from "./connected.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironment } from "./environment-file.ts";
import { addCheckpointOptions, savedEvaluation, savedEvaluationLines } from "./evaluate-checkpoints.ts";

interface EvaluateOptions extends EnvironmentOptions, OutputOptions {
  readonly model?: ModelName;
  readonly base?: string;
  readonly step?: number;
  readonly samples: number;
  readonly temperature?: number;
  readonly chatTemplateKwargs?: JsonObject;
  readonly concurrency: number;
  readonly checkpoints?: readonly number[] | "all";
  readonly out?: string;
}

/** Creates the command `whetstone eval <file>`, which evaluates a checkpoint on the eval scenarios of an environment. */
export function evaluateCommand(): Command {
  const command = addEnvironment(new Command("eval"))
    .description("evaluate a model on the eval scenarios of the environment that a file exports")
    .option("--model <project/name>", "trained model to evaluate", modelName)
    .addOption(
      new Option("--base <model>", `base model to evaluate instead of a trained model: ${BASE_FORMS}`).conflicts([
        "model",
        "step",
        "checkpoints",
        "out",
      ]),
    )
    .option("--step <number>", "checkpoint of the model (default: the newest)", integer(0))
    .option("--samples <number>", "rollouts per scenario", integer(1), 1)
    .option("--temperature <number>", "sampling temperature (default: 0 with one sample, else 1)", positive)
    .option(TEMPLATE_KWARGS_OPTION, TEMPLATE_KWARGS_DESCRIPTION, jsonObject)
    .option("--concurrency <number>", "max concurrent rollouts", integer(1), 64);
  return addCheckpointOptions(command).action(run);
}

async function run(this: Command, file: string, options: EvaluateOptions): Promise<void> {
  const { model, base, step, samples, temperature, chatTemplateKwargs, concurrency, checkpoints } = options;
  if (model === undefined && base === undefined)
    this.error("error: expected --model <project/name>, or --base <model> to evaluate a base model", { exitCode: 2 });
  if (step !== undefined && checkpoints !== undefined)
    this.error("error: expected --step <number> or --checkpoints <steps>, got both", { exitCode: 2 });
  const environment = await loadEnvironment(file, options);
  await withService(async (connected) => {
    const { signal } = connected;
    if (model !== undefined && (checkpoints !== undefined || options.out !== undefined)) {
      const trained = await trainedModel(connected, model);
      const out = options.out ?? `runs/eval-${environment.name}-${model.name}`;
      const steps = checkpoints ?? [step ?? (await trained.step({ signal }))];
      const saved = { model: trained, environment, checkpoints: steps, out, samples, temperature, chatTemplateKwargs, concurrency, signal };
      printResult(options, await savedEvaluation(saved), savedEvaluationLines);
      return;
    }
    const policy = model === undefined ? await basePolicy(connected, base as string) : await trainedPolicy(connected, model, step);
    const {
      groups: _groups,
      metrics: _metrics,
      ...found
    } = await evaluate(environment, policy, { samples, temperature, chatTemplateKwargs, concurrency, signal });
    printResult(options, found, function* () {
      yield `${found.environment} by ${found.policy}: ${found.scenarios} scenarios, ${samples} rollouts each`;
      yield `reward    ${formatInterval(found.reward)}`;
      for (const each of found.passAtK) yield `pass@${String(each.k).padEnd(4)} ${formatInterval(each)}`;
      for (const [name, value] of Object.entries(found.rewards)) yield `${name.padEnd(9)} ${formatInterval(value)}`;
      if (found.exceptions > 0) yield `${found.exceptions} rollouts failed`;
    });
  }, "; with --out or --checkpoints, start the same command again and it resumes");
}
