/** Command `whetstone validate`: checks an environment without a model. */
import { Command } from "commander";
import { validate } from "../library/environment/index.ts";
import { integer } from "./arguments.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironment } from "./environment-file.ts";
import { EXIT_FAILURE } from "./failure.ts";
import { type OutputOptions, plural, printResult } from "./output.ts";

/** Creates the command `whetstone validate <file>`, which checks that an environment rewards its own correct answers. Uses no model. */
export function validateCommand(): Command {
  return addEnvironment(new Command("validate"))
    .description("check that the rewards of an environment accept its right answers; uses no model")
    .option("--count <number>", "max scenarios to check per split", integer(1), 100)
    .action(run);
}

/** Runs the command. */
async function run(file: string, { count, ...options }: EnvironmentOptions & OutputOptions & { readonly count: number }): Promise<void> {
  const environment = await loadEnvironment(file, options);
  const validation = await validate(environment, { count });
  printResult(options, validation, function* ({ isValid, expected, findings, scores }) {
    for (const { severity, count: total, message, examples } of findings)
      yield `${severity}: ${message} (${total}; ${examples.join(", ")})`;
    for (const name of Object.keys(scores[0]?.rewards ?? {})) {
      const mean = scores.reduce((sum, { rewards }) => sum + (rewards[name] ?? 0), 0) / scores.length;
      yield `${name}: ${mean.toFixed(4)} for right answers`;
    }
    yield `${environment.name}: ${isValid ? "valid" : "not valid"}; ${plural(scores.length, "right answer")} held to a reward of ${expected}`;
  });
  if (!validation.isValid) process.exitCode = EXIT_FAILURE;
}
