/** Plan of reinforcement jobs: their grader, rows and hyperparameters. */
import { ArgumentError, UnsupportedError, WhetstoneError, type ErrorCode } from "../../base/errors.ts";
import type { ChatCompletionRequest, FineTuningJob, Grader, JsonObject, ReinforcementHyperparameters } from "../../base/schema/index.ts";
import { defaultRate } from "../../base/util/default-rates.ts";
import { first } from "../../base/util/values.ts";
import { checkGrader, checkItem } from "../../graders/index.ts";
import { requestOf } from "../jobs/rollouts.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import { visibilityOf } from "../store/visibility.ts";
import { readReinforcementRows, type ReinforcementRow } from "../training-data/reinforcement-data.ts";
import type { CreationContext, MethodInput, MethodPlan } from "./create-job.ts";
import { autoEpochs, orAuto, requireStepCount } from "./hyperparameters.ts";

/** Rows of a batch. */
const BATCH_SIZE = 16;
/** Samples per row with a `compute_multiplier` of 1, and the min number. */
const [GROUP_SIZE, MIN_GROUP_SIZE] = [8, 2];
/** Validations in a job, and the last of them after which a job makes a checkpoint. */
const [VALIDATIONS, CHECKPOINTS] = [10, 3];
const MAX_STEPS = 100_000;
const AT = "method.reinforcement";
/** Codes of errors about a format. */
const FORMAT_FAILURES: readonly ErrorCode[] = ["E_ARGUMENT", "E_DATA", "E_UNSUPPORTED"];

/** Hyperparameters without `"auto"`. */
export type ResolvedReinforcement = Extract<
  FineTuningJob["method"],
  { readonly type: "reinforcement" }
>["reinforcement"]["hyperparameters"];

/**
 * Replaces `"auto"` and absent values by numbers.
 *
 * - `n_epochs`: as for supervised jobs, see `resolveHyperparameters`.
 * - `batch_size`: 16, at most the number of rows.
 * - `compute_multiplier`, `learning_rate_multiplier`, `eval_samples`: 1.
 * - `eval_interval`: a tenth of the steps, rounded up.
 *
 * @param rows - Number of rows in the training data, at least 1.
 */
export function resolveReinforcement(asked: ReinforcementHyperparameters, rows: number): ResolvedReinforcement {
  const epochs = orAuto(asked.n_epochs, autoEpochs(rows));
  const batchSize = orAuto(asked.batch_size, Math.min(BATCH_SIZE, rows));
  return {
    n_epochs: epochs,
    batch_size: batchSize,
    learning_rate_multiplier: orAuto(asked.learning_rate_multiplier, 1),
    compute_multiplier: orAuto(asked.compute_multiplier, 1),
    eval_interval: orAuto(asked.eval_interval, Math.ceil((epochs * Math.ceil(rows / batchSize)) / VALIDATIONS)),
    eval_samples: orAuto(asked.eval_samples, 1),
    reasoning_effort: asked.reasoning_effort ?? "default",
  };
}

/** Checks grader and data of a reinforcement request and plans its RL job. */
export async function planReinforcementJob(context: CreationContext, input: MethodInput): Promise<MethodPlan> {
  const { engine } = context;
  const { request, seed, start, data, modelName } = input;
  const settings = request.method?.reinforcement ?? null;
  if (settings === null) throw new ArgumentError("Expected a grader in `method.reinforcement`, got nothing", { param: `${AT}.grader` });
  if ((request.hyperparameters ?? null) !== null)
    throw new ArgumentError(`The deprecated \`hyperparameters\` belong to supervised jobs; send \`${AT}.hyperparameters\``, {
      param: "hyperparameters",
    });
  const grader = checkGrader(settings.grader, { at: AT.split(".").concat("grader") });
  const asked = settings.hyperparameters ?? {};
  const format = settings.response_format ?? null;
  const members: JsonObject = format === null ? {} : { response_format: format };
  const rows = await checkedRows(context, input, { artifact: data.training, param: "training_file", grader, members });
  const { validation } = data;
  if (validation !== null) await checkedRows(context, input, { artifact: validation, param: "validation_file", grader, members });
  if (format !== null) await requireFormat(context, requestOf(first(rows), input.start.baseModel, members));
  const effort = asked.reasoning_effort ?? "default";
  if (effort !== "default") await requireEffort(context, input, { row: first(rows), effort });
  const hyperparameters = resolveReinforcement(asked, rows.length);
  const { n_epochs: epochs, batch_size: batchSize, eval_interval: interval } = hyperparameters;
  const steps = epochs * Math.ceil(rows.length / batchSize);
  requireStepCount(steps, { max: MAX_STEPS, path: `${AT}.hyperparameters` });
  const { parameters } = await engine.describeBase(start.baseModel);
  // The rate for all parameters, also for an adapter: the ten times higher one of adapters collapses the policy in long jobs.
  const rate = hyperparameters.learning_rate_multiplier * defaultRate(parameters, "rl", false);
  const clips = engine.capabilities().clipsGradients ?? true;
  return {
    jobType: "rl",
    config: {
      experimental_config: { learning_rate: rate, ...(clips ? {} : { max_grad_norm: 0 }) },
      artifact_id: data.training.id,
      ...(validation === null ? {} : { validation_artifact_id: validation.id }),
      fine_tuning: { model: modelName, checkpoint_steps: checkpointSteps(steps, interval) },
      reinforcement: {
        grader,
        seed,
        epochs,
        batch_size: batchSize,
        group_size: Math.max(Math.round(GROUP_SIZE * hyperparameters.compute_multiplier), MIN_GROUP_SIZE),
        eval_interval: interval,
        eval_samples: hyperparameters.eval_samples,
        request: { ...members, ...(effort === "default" ? {} : { reasoning_effort: effort }) },
        visible_entity: visibilityOf(context.store).entity,
      },
    },
    stored: {
      hyperparameters: { batch_size: batchSize, n_epochs: epochs, learning_rate_multiplier: hyperparameters.learning_rate_multiplier },
      steps,
      reinforcement: { grader, hyperparameters, ...(format === null ? {} : { response_format: format }) },
    },
    warnings: [],
  };
}

/** Returns the steps of the last three validations, without the last step. */
function checkpointSteps(steps: number, interval: number): number[] {
  const before = Array.from({ length: Math.ceil(steps / interval) - 1 }, (_, index) => (index + 1) * interval);
  return before.slice(-(CHECKPOINTS - 1));
}

/** File to check. */
interface CheckedFile {
  readonly artifact: StoredArtifact;
  readonly param: string;
  readonly grader: Grader;
  readonly members: JsonObject;
}

/** Reads the rows of a file, and checks for each that the grader finds its fields and that its prompt leaves room for an answer. */
async function checkedRows(
  { store, files, jobChat }: CreationContext,
  { start }: MethodInput,
  { artifact, param, grader, members }: CheckedFile,
): Promise<ReinforcementRow[]> {
  const chat = (await jobChat.value)(visibilityOf(store));
  return readReinforcementRows(artifact, {
    files,
    param,
    async check(row) {
      checkItem(grader, row.item);
      const { ids, contextLength } = await chat.promptOf(requestOf(row, start.baseModel, members));
      if (ids.length >= contextLength)
        throw new ArgumentError(`Expected a prompt shorter than the model's context of ${contextLength} tokens, got ${ids.length} tokens`);
    },
  });
}

/**
 * Samples one token of an answer in the job's format, which compiles the format.
 *
 * @throws ArgumentError `E_ARGUMENT` for a format that the service does not accept.
 */
async function requireFormat({ store, jobChat }: CreationContext, request: ChatCompletionRequest): Promise<void> {
  const chat = (await jobChat.value)(visibilityOf(store));
  try {
    await chat.sample({ ...request, max_completion_tokens: 1 });
  } catch (error) {
    if (!WhetstoneError.isInstance(error) || !FORMAT_FAILURES.includes(error.code)) throw error;
    throw new ArgumentError(error.message, { param: `${AT}.response_format`, cause: error });
  }
}

/** @throws UnsupportedError `E_UNSUPPORTED` if the effort does not change the prompt, which is its only effect. */
async function requireEffort(
  { store, jobChat }: CreationContext,
  { start }: MethodInput,
  { row, effort }: { readonly row: ReinforcementRow; readonly effort: string },
): Promise<void> {
  const chat = (await jobChat.value)(visibilityOf(store));
  const [plain, changed] = await Promise.all(
    [{}, { reasoning_effort: effort }].map((more) => chat.promptOf(requestOf(row, start.baseModel, more))),
  );
  if (plain!.ids.join() !== changed!.ids.join()) return;
  throw new UnsupportedError(
    `The chat template of the base model \`${start.baseModel}\` has no \`reasoning_effort\`: leave it out, or send "default"`,
    { param: `${AT}.hyperparameters.reasoning_effort` },
  );
}
