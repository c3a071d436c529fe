/** Command `whetstone eval`. `evaluate-checkpoints.ts` has the evaluations that are stored. */
import { Command, Option } from "commander";
import { evaluate } from "../library/environment/index.ts";
import type { JsonObject } from "../base/schema/index.ts";
import { toolErrorWarnings } from "../base/trajectory/tool-errors.ts";
import { evaluationLines } from "./evaluation-lines.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { BASE_FORMS, integer, jsonObjectArgument, nonNegative, TEMPLATE_KWARGS_DESCRIPTION, TEMPLATE_KWARGS_OPTION } from "./arguments.ts";
import { addDataDir, basePolicy, trainedModel, trainedPolicy, withService } from "./connected.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironment } from "./environment-file.ts";
import { runName } from "./names.ts";
import { addCheckpointOptions, savedEvaluation, savedEvaluationLines } from "./evaluate-checkpoints.ts";

/** Options of the command. */
interface EvaluateOptions extends EnvironmentOptions, OutputOptions {
  readonly model?: string;
  readonly base?: string;
  readonly samples: number;
  readonly temperature?: number;
  readonly chatTemplateKwargs?: JsonObject;
  readonly concurrency: number;
  readonly checkpoints?: readonly number[] | "all";
  readonly out?: string;
}

/** Creates the command `whetstone eval <file>`, which evaluates a checkpoint on the eval scenarios of an environment. */
export function evaluateCommand(): Command {
  const command = addDataDir(addEnvironment(new Command("eval")))
    .description("evaluate a model on the eval scenarios of the environment that a file exports")
    .option("--model <model[:step]>", "trained model to evaluate, without a step its newest checkpoint")
    .addOption(
      new Option("--base <model>", `base model to evaluate instead of a trained model: ${BASE_FORMS}`).conflicts([
        "model",
        "checkpoints",
        "out",
      ]),
    )
    .option("--samples <number>", "rollouts per scenario", integer(1), 1)
    .option("--temperature <number>", "sampling temperature (default: 0 with one sample, else 1)", nonNegative)
    .option(TEMPLATE_KWARGS_OPTION, TEMPLATE_KWARGS_DESCRIPTION, jsonObjectArgument)
    .option("--concurrency <number>", "max concurrent rollouts", integer(1), 64);
  return addCheckpointOptions(command).action(run);
}

/** Runs the command: a stored evaluation of checkpoints with `--out` or `--checkpoints`, else an evaluation that is only printed. */
async function run(this: Command, file: string, options: EvaluateOptions): Promise<void> {
  const { model, base, samples, temperature, chatTemplateKwargs, concurrency, checkpoints } = options;
  if (model === undefined && base === undefined)
    this.error("error: expected --model <model[:step]>, or --base <model> to evaluate a base model", { exitCode: 2 });
  const environment = await loadEnvironment(file, options);
  await withService(
    options,
    async (connected) => {
      const { signal } = connected;
      const settings = { samples, temperature, chatTemplateKwargs, concurrency, signal };
      if (model !== undefined && (checkpoints !== undefined || options.out !== undefined)) {
        const { model: trained, step } = await trainedModel(connected, model);
        if (step !== undefined && checkpoints !== undefined)
          this.error(`error: expected a step in --model or --checkpoints <steps>, got both`, { exitCode: 2 });
        const out = options.out ?? `runs/eval-${runName(environment.name, trained.name)}`;
        const steps = checkpoints ?? [step ?? (await trained.step({ signal }))];
        const saved = await savedEvaluation({ model: trained, environment, checkpoints: steps, out, ...settings });
        printResult(options, saved, savedEvaluationLines);
        return;
      }
      const policy = model === undefined ? await basePolicy(connected, base as string) : await trainedPolicy(connected, model);
      const evaluation = await evaluate(environment, policy, settings);
      const { groups, ...result } = evaluation;
      printResult(options, { ...result, warnings: toolErrorWarnings(groups) }, () => evaluationLines(evaluation));
    },
    "; with --out or --checkpoints, start the same command again and it resumes",
  );
}
