/** Evaluation of checkpoints as a run of its own, which resumes like a training run. */
import type { Model } from "../../library/client/index.ts";
import type { Environment } from "../../library/environment/index.ts";
import { ArgumentError } from "../../base/errors.ts";
import { evaluateCheckpoint } from "./evaluation.ts";
import { resultOf } from "./loop.ts";
import {
  checkEvaluation,
  checkIntegerOption,
  checkRunOptions,
  checkEvaluationSampling,
  type EvaluationOptions,
  type RunOptions,
} from "./options.ts";
import type { RunConfig, RunDirectory } from "../../run/run-directory.ts";
import type { ResumeState } from "../../run/resume-state.ts";
import { TrainingRun, type RunKind } from "./training-run.ts";

/** Options of {@link evaluateCheckpoints}. */
export interface EvaluateCheckpointsOptions<S>
  extends
    Pick<RunOptions, "runDir" | "chatTemplateKwargs" | "concurrency" | "timeoutMs" | "report" | "progress" | "trackers" | "signal">,
    Omit<EvaluationOptions, "every"> {
  /** Model that has the checkpoints. */
  readonly model: Model;
  /** Environment with the `eval` scenarios to play. */
  readonly environment: Environment<S>;
  /** Steps of the model's checkpoints, at least one; evaluated in this order. */
  readonly checkpoints: readonly number[];
  /** Sampling seed, an integer; all checkpoints get the same draws. @default 0 */
  readonly seed?: number | undefined;
}

/**
 * Evaluates checkpoints of a model on the `eval` scenarios of an environment and stores rollouts and metrics in a run directory, like the
 * evaluations of a training run. If the evaluation is interrupted, the same call resumes it: finished checkpoints are skipped, and of an
 * unfinished one only the missing scenarios are played. A later call may add checkpoints.
 *
 * In the files, the step of an evaluation is the step of its checkpoint. Up to 5 % of the rollouts may fail; a rollout is retried twice
 * after a transient failure.
 *
 * @param options - Model, environment, checkpoints and run directory; all other options have defaults.
 * @returns The started run; its `done` resolves when all checkpoints are evaluated.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds. Every other error rejects `done`, among them NotFoundError
 *   `E_NOT_FOUND` for a checkpoint that does not exist.
 * @example
 * ```ts
 * await evaluateCheckpoints({ model, environment, checkpoints: [0, 10, 20], samples: 4, runDir: "runs/eval" }).done;
 * ```
 */
export function evaluateCheckpoints<S>(options: EvaluateCheckpointsOptions<S>): TrainingRun {
  const { environment, checkpoints } = options;
  checkRunOptions(options);
  checkEvaluationSampling(options);
  checkEvaluation({}, environment);
  checkIntegerOption("seed", options.seed, Number.MIN_SAFE_INTEGER);
  const invalid = checkpoints.find((step, index) => !(Number.isSafeInteger(step) && step >= 0) || checkpoints.indexOf(step) !== index);
  if (checkpoints.length === 0 || invalid !== undefined) {
    throw new ArgumentError(
      `Expected \`checkpoints\` to be distinct steps of checkpoints, integers from 0, at least one; got ${JSON.stringify(checkpoints)}`,
      { param: "checkpoints" },
    );
  }
  const kind: RunKind = {
    config: configOf(options),
    // The run has no training steps.
    count: 0,
    checkpoints: (state) => {
      const evaluated = checkpoints.filter((checkpoint) => isEvaluated(state, checkpoint));
      return { count: checkpoints.length, completed: evaluated.length };
    },
    loop: (directory) => evaluationLoop(directory, options),
  };
  return new TrainingRun(Promise.resolve(kind), options);
}

/** Whether the run has evaluated a checkpoint. The step of an evaluation is the step of its checkpoint. */
function isEvaluated({ evaluations }: ResumeState, checkpointStep: number): boolean {
  return evaluations.some(({ step }) => step === checkpointStep);
}

/** Returns the settings for `config.json`. */
function configOf<S>({ model, environment, checkpoints, ...options }: EvaluateCheckpointsOptions<S>): RunConfig {
  const { samples = 1, temperature = samples === 1 ? 0 : 1, seed = 0, concurrency = 64, timeoutMs = null } = options;
  return {
    version: 1,
    kind: "eval",
    fixed: {
      environment: environment.name,
      model: `${model.entity}/${model.project}/${model.name}`,
      model_id: model.id,
      base_model: model.baseModel,
      group_size: samples,
      seed,
      temperature,
      chat_template_kwargs: options.chatTemplateKwargs ?? null,
    },
    free: { evaluation: { checkpoints }, concurrency, timeout_ms: timeoutMs },
  };
}

/** Returns the loop that evaluates one checkpoint after the other; `stop` ends the run after the current checkpoint. */
function evaluationLoop<S>(directory: RunDirectory, givenOptions: EvaluateCheckpointsOptions<S>): ReturnType<RunKind["loop"]> {
  const { environment, checkpoints, samples, temperature, seed = 0 } = givenOptions;
  const options = { ...givenOptions, evaluation: { samples, temperature } };
  const environments = [environment as Environment<unknown>];
  let isStopped = false;
  return {
    stop() {
      isStopped = true;
    },
    async run(signal) {
      for (const checkpointStep of checkpoints) {
        if (isEvaluated(directory.state, checkpointStep)) continue;
        if (isStopped) return resultOf(directory, "stopped");
        await evaluateCheckpoint({ directory, options, environments, seed, step: checkpointStep, checkpointStep, signal });
      }
      return resultOf(directory, "completed");
    },
  };
}
