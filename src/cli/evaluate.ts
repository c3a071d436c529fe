import { Command } from "commander";
import { evaluate } from "../environment/index.ts";
import { printLine } from "../util/output.ts";
import { integer, modelName, positive } from "./arguments.ts";
import { withModel, type ModelOptions } from "./connected.ts";
import { loadEnvironment } from "./environment-file.ts";

interface EvaluateOptions extends ModelOptions {
  readonly step?: number;
  readonly samples: number;
  readonly temperature?: number;
  readonly concurrency: number;
  readonly json?: boolean;
}

/** Creates the command `whetstone eval <file>`, which evaluates a checkpoint on the eval scenarios of an environment. */
export function evaluateCommand(): Command {
  return new Command("eval")
    .description("measure a model on the eval scenarios of the environment that a file exports")
    .argument("<environment>", "file with `export default defineEnvironment({ … })`")
    .requiredOption("--model <project/name>", "the model to measure; created if it is not there", modelName)
    .option("--base <id>", "base model of a new model", "whetstone-tiny")
    .option("--step <number>", "its checkpoint (default: the newest)", integer(0))
    .option("--samples <number>", "rollouts per scenario", integer(1), 1)
    .option("--temperature <number>", "of sampling (default: 0 with one sample, else 1)", positive)
    .option("--concurrency <number>", "rollouts at the same time", integer(1), 64)
    .option("--json", "one JSON object instead of lines")
    .action(run);
}

async function run(file: string, { step, samples, temperature, concurrency, json, ...model }: EvaluateOptions): Promise<void> {
  const environment = await loadEnvironment(file);
  await withModel(model, async ({ model: trained, signal }) => {
    const policy = await trained.policy(step);
    const {
      groups: _groups,
      metrics: _metrics,
      ...found
    } = await evaluate(environment, policy, { samples, temperature, concurrency, signal });
    if (json === true) {
      printLine(JSON.stringify(found));
      return;
    }
    const interval = ({ mean, low, high }: { readonly mean: number; readonly low: number; readonly high: number }) =>
      `${mean.toFixed(4)} (${low.toFixed(4)} to ${high.toFixed(4)})`;
    printLine(`${found.environment} by ${found.policy}: ${found.scenarios} scenarios, ${samples} rollouts each`);
    printLine(`reward    ${interval(found.reward)}`);
    for (const each of found.passAtK) printLine(`pass@${String(each.k).padEnd(4)} ${interval(each)}`);
    for (const [name, value] of Object.entries(found.rewards)) printLine(`${name.padEnd(9)} ${interval(value)}`);
    if (found.exceptions > 0) printLine(`${found.exceptions} rollouts failed`);
  });
}
