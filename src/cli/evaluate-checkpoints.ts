/** Evaluation of several checkpoints for `whetstone eval`: stored in a run directory, resumable, and compared with the first. */
import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import type { Model } from "../library/client/index.ts";
import type { Environment } from "../library/environment/index.ts";
import { evaluationEstimates, type EvaluationEstimates } from "../library/environment/evaluate.ts";
import { NotFoundError } from "../base/errors.ts";
import { compare, openRun, type Comparison, type Run } from "../lab/experiment/index.ts";
import { evaluateCheckpoints } from "../training/train/index.ts";
import type { JsonObject } from "../base/schema/index.ts";
import type { TrajectoryGroup } from "../base/trajectory/index.ts";
import { comparisonLines } from "./compare.ts";
import { formatInterval, plural } from "./output.ts";

/** Settings of {@link savedEvaluation}. */
export interface SavedEvaluationSettings {
  readonly model: Model;
  readonly environment: Environment<unknown>;
  /** Steps of checkpoints, or all kept checkpoints of the model. */
  readonly checkpoints: readonly number[] | "all";
  /** Run directory of the results. */
  readonly out: string;
  readonly samples: number;
  readonly temperature?: number | undefined;
  readonly chatTemplateKwargs?: JsonObject | undefined;
  readonly concurrency: number;
  readonly signal: AbortSignal;
}

/** Result of {@link savedEvaluation}, as printed with `--json`. */
export interface SavedEvaluation {
  readonly environment: string;
  readonly model: string;
  readonly samples: number;
  readonly runDir: string;
  readonly checkpoints: readonly ({ readonly step: number; readonly scenarios: number } & EvaluationEstimates)[];
  /** Paired differences to the first checkpoint; null for a single checkpoint. */
  readonly comparison: Comparison | null;
}

/** Parses `0,5,10` or `all`. */
export function checkpointsArgument(text: string): readonly number[] | "all" {
  if (text === "all") return "all";
  const steps = text.split(",").map((each) => (/^\d+$/u.test(each.trim()) ? Number(each) : Number.NaN));
  if (steps.some((step) => !Number.isSafeInteger(step)) || new Set(steps).size !== steps.length)
    throw new InvalidArgumentError('Expected distinct steps with commas between them, such as 0,5,10, or "all".');
  return steps;
}

/** Adds the options of saved evaluations. */
export function addCheckpointOptions(command: Command): Command {
  return command
    .option("--checkpoints <steps>", "checkpoints to evaluate and compare with the first: 0,5,10, or all", checkpointsArgument)
    .option(
      "--out <directory>",
      "directory of the results; an interrupted evaluation resumes (default with --checkpoints: runs/eval-<environment>-<model>, or runs/eval-<model> if the names are equal)",
    );
}

/**
 * Evaluates checkpoints, stores the rollouts, and compares each checkpoint with the first.
 *
 * @throws NotFoundError `E_NOT_FOUND` for a checkpoint that does not exist.
 */
export async function savedEvaluation(settings: SavedEvaluationSettings): Promise<SavedEvaluation> {
  const { model, environment, out, samples, temperature, chatTemplateKwargs, concurrency, signal } = settings;
  const keptSteps = (await model.checkpoints({ signal })).map(({ step }) => step).sort((a, b) => a - b);
  const checkpoints = settings.checkpoints === "all" ? keptSteps : settings.checkpoints;
  const missing = checkpoints.find((step) => !keptSteps.includes(step));
  if (missing !== undefined) {
    throw new NotFoundError(`The model \`${model.name}\` has no checkpoint ${missing}; it has ${keptSteps.join(", ")}`, {
      param: "checkpoints",
    });
  }
  const options = { model, environment, checkpoints, samples, temperature, chatTemplateKwargs, concurrency, signal };
  await evaluateCheckpoints({ ...options, runDir: out }).done;
  const run = await openRun(out, { signal });
  const results = [];
  for (const step of checkpoints) results.push({ step, ...(await estimatesOf(run, step, { environment, samples })) });
  const evaluations = checkpoints.map((step) => run.at(step));
  const comparison = evaluations.length < 2 ? null : await compare(evaluations, { signal });
  return {
    environment: environment.name,
    model: `${model.entity}/${model.project}/${model.name}`,
    samples,
    runDir: run.dir,
    checkpoints: results,
    comparison,
  };
}

/** Returns rewards and pass@k of an evaluation that the run has stored. */
async function estimatesOf(
  run: Run,
  step: number,
  { environment, samples }: Pick<SavedEvaluationSettings, "environment" | "samples">,
): Promise<EvaluationEstimates & { readonly scenarios: number }> {
  const groups: TrajectoryGroup[] = [];
  for await (const group of run.groups({ split: "eval", step })) groups.push(group);
  return { scenarios: groups.length, ...evaluationEstimates(environment, groups, { ks: [...new Set([1, samples])] }) };
}

/** Lays out a saved evaluation as lines. */
export function* savedEvaluationLines(saved: SavedEvaluation): Generator<string> {
  const { environment, model, samples, runDir: dir, checkpoints, comparison } = saved;
  yield `${environment} by ${model}: ${plural(checkpoints[0]?.scenarios ?? 0, "scenario")}, ${plural(samples, "rollout")} each; saved in ${dir}`;
  for (const { step, reward, passAtK, exceptions } of checkpoints) {
    const passes = passAtK.map(({ k, mean }) => `pass@${k} ${mean.toFixed(4)}`).join("  ");
    const failures = exceptions > 0 ? `  ${plural(exceptions, "rollout")} failed` : "";
    yield `checkpoint ${step}  reward ${formatInterval(reward)}  ${passes}${failures}`;
  }
  if (comparison !== null) yield* comparisonLines(comparison);
}
