/** Plan of reinforcement jobs: checks of grader and rows, and hyperparameters. `jobs/reinforcement.ts` runs the jobs. */
import { ArgumentError, UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import type {
  ChatCompletionRequest,
  FineTuningJob,
  Grader,
  JsonObject,
  ReinforcementHyperparameters,
  RlConfig,
} from "../../base/schema/index.ts";
import { defaultRate } from "../../base/util/default-rates.ts";
import { first } from "../../base/util/values.ts";
import { checkGrader, checkItem } from "../../graders/index.ts";
import type { FineTuningRequest } from "../http/requests.ts";
import { rowRequest } from "../jobs/rollouts.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import { visibilityOf } from "../store/visibility.ts";
import { DATA_ERRORS, readReinforcementRows, type ReinforcementRow } from "../training-data/reinforcement-data.ts";
import type { CreationContext, MethodPlanInput, MethodPlan } from "./create-job.ts";
import { autoEpochs, orAuto, requireStepCount } from "./hyperparameters.ts";

/** Automatic number of rows per batch. */
const AUTO_BATCH_SIZE = 16;
/** Samples per row with a `compute_multiplier` of 1. */
const GROUP_SIZE = 8;
/** Min samples per row: the advantages of a group of one are 0. */
const MIN_GROUP_SIZE = 2;
/** Automatic number of validations in a job. */
const AUTO_VALIDATIONS = 10;
/** Max checkpoints of a job: one after each of its last validations, of which the last one is the final model. */
const MAX_CHECKPOINTS = 3;
/** Max optimizer steps of a job. */
const MAX_STEPS = 100_000;
/** Path of the method's settings in a request. */
const METHOD_PATH = "method.reinforcement";

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
 * @param rowCount - Number of rows in the training data, at least 1.
 */
export function resolveReinforcement(requested: ReinforcementHyperparameters, rowCount: number): ResolvedReinforcement {
  const epochs = orAuto(requested.n_epochs, autoEpochs(rowCount));
  const batchSize = orAuto(requested.batch_size, Math.min(AUTO_BATCH_SIZE, rowCount));
  return {
    n_epochs: epochs,
    batch_size: batchSize,
    learning_rate_multiplier: orAuto(requested.learning_rate_multiplier, 1),
    compute_multiplier: orAuto(requested.compute_multiplier, 1),
    eval_interval: orAuto(requested.eval_interval, Math.ceil((epochs * Math.ceil(rowCount / batchSize)) / AUTO_VALIDATIONS)),
    eval_samples: orAuto(requested.eval_samples, 1),
    reasoning_effort: requested.reasoning_effort ?? "default",
  };
}

/** Checks grader and data of a reinforcement request and plans its RL job. */
export async function planReinforcementJob(context: CreationContext, input: MethodPlanInput): Promise<MethodPlan> {
  const { request, seed, start, data, modelName } = input;
  const settings = requireSettings(request);
  const grader = checkGrader(settings.grader, { at: [...METHOD_PATH.split("."), "grader"] });
  const format = settings.response_format ?? null;
  const formatMember = format === null ? {} : { response_format: format };
  const effort = settings.hyperparameters?.reasoning_effort ?? "default";
  // "default" is the effort of a request without the field.
  const members: JsonObject = { ...formatMember, ...(effort === "default" ? {} : { reasoning_effort: effort }) };
  const rows = await readRows(context, input, { artifact: data.training, param: "training_file", grader, members });
  if (data.validation !== null) await readRows(context, input, { artifact: data.validation, param: "validation_file", grader, members });
  const firstRequest = rowRequest(first(rows), start.baseModel, members);
  if (effort !== "default") await requireEffort(context, firstRequest);
  if (format !== null) await requireFormat(context, firstRequest);
  const hyperparameters = resolveReinforcement(settings.hyperparameters ?? {}, rows.length);
  const { n_epochs: epochs, batch_size: batchSize, learning_rate_multiplier: multiplier } = hyperparameters;
  const steps = epochs * Math.ceil(rows.length / batchSize);
  requireStepCount(steps, { max: MAX_STEPS, path: `${METHOD_PATH}.hyperparameters` });
  return {
    jobType: "rl",
    config: {
      experimental_config: await optimizerConfig(context, start.baseModel, multiplier),
      artifact_id: data.training.id,
      ...(data.validation === null ? {} : { validation_artifact_id: data.validation.id }),
      fine_tuning: { model: modelName, checkpoint_steps: checkpointSteps(steps, hyperparameters.eval_interval) },
      reinforcement: {
        grader,
        seed,
        ...roundSettings(hyperparameters),
        request: members,
        visible_entity: visibilityOf(context.store).entity,
      },
    },
    stored: {
      hyperparameters: { batch_size: batchSize, n_epochs: epochs, learning_rate_multiplier: multiplier },
      steps,
      reinforcement: { grader, hyperparameters, ...formatMember },
    },
    warnings: [],
  };
}

/** Returns the settings of a job's batches, groups and validations. */
function roundSettings({ n_epochs, batch_size, compute_multiplier, eval_interval, eval_samples }: ResolvedReinforcement) {
  const groupSize = Math.max(Math.round(GROUP_SIZE * compute_multiplier), MIN_GROUP_SIZE);
  return { epochs: n_epochs, batch_size, group_size: groupSize, eval_interval, eval_samples };
}

/** Returns the settings of the method. @throws ArgumentError `E_ARGUMENT` without them, and for the deprecated `hyperparameters`. */
function requireSettings({ method, hyperparameters }: FineTuningRequest) {
  const settings = method?.reinforcement ?? null;
  if (settings === null)
    throw new ArgumentError(`Expected a grader in \`${METHOD_PATH}\`, got nothing`, { param: `${METHOD_PATH}.grader` });
  if ((hyperparameters ?? null) === null) return settings;
  throw new ArgumentError(`The deprecated \`hyperparameters\` belong to supervised jobs; send \`${METHOD_PATH}.hyperparameters\``, {
    param: "hyperparameters",
  });
}

/** Returns the settings of the optimizer. Gradients are not clipped if the engine cannot. */
async function optimizerConfig({ engine }: CreationContext, baseModel: string, multiplier: number): Promise<RlConfig> {
  const { parameters } = await engine.describeBase(baseModel);
  // The rate for training all parameters, also for an adapter: the ten times higher rate of adapters collapses the policy in long jobs.
  const learningRate = multiplier * defaultRate(parameters, "rl", false);
  const clipsGradients = engine.capabilities().clipsGradients ?? true;
  return { learning_rate: learningRate, ...(clipsGradients ? {} : { max_grad_norm: 0 }) };
}

/** Returns the steps with a checkpoint: the last validations before the end. The final model is the last checkpoint. */
function checkpointSteps(steps: number, interval: number): number[] {
  const validationsBeforeEnd = Math.ceil(steps / interval) - 1;
  const validationSteps = Array.from({ length: validationsBeforeEnd }, (_, index) => (index + 1) * interval);
  return validationSteps.slice(-(MAX_CHECKPOINTS - 1));
}

/** File to read, and the settings that its rows are checked with. */
interface RowFile {
  readonly artifact: StoredArtifact;
  /** Request field that names the file. */
  readonly param: string;
  readonly grader: Grader;
  /** Members of every request of the job. */
  readonly members: JsonObject;
}

/** Reads the rows of a file, and checks for each that the grader finds its fields and that its prompt leaves room for an answer. */
async function readRows(
  { store, files, jobChat }: CreationContext,
  { start }: MethodPlanInput,
  { artifact, param, grader, members }: RowFile,
): Promise<ReinforcementRow[]> {
  const chat = (await jobChat.value)(visibilityOf(store));
  return readReinforcementRows(artifact, {
    files,
    param,
    async check(row) {
      checkItem(grader, row.item);
      const { ids, contextLength } = await chat.promptOf(rowRequest(row, start.baseModel, members));
      if (ids.length >= contextLength)
        throw new ArgumentError(`Expected a prompt shorter than the model's context of ${contextLength} tokens, got ${ids.length} tokens`);
    },
  });
}

/**
 * Checks the response format of a request by sampling one token, which compiles the format.
 *
 * @throws ArgumentError `E_ARGUMENT` for a format that the service does not accept.
 */
async function requireFormat({ store, jobChat }: CreationContext, request: ChatCompletionRequest): Promise<void> {
  const chat = (await jobChat.value)(visibilityOf(store));
  try {
    await chat.sample({ ...request, max_completion_tokens: 1 });
  } catch (error) {
    if (!WhetstoneError.isInstance(error) || !DATA_ERRORS.includes(error.code)) throw error;
    throw new ArgumentError(error.message, { param: `${METHOD_PATH}.response_format`, cause: error });
  }
}

/**
 * Checks that the effort of a request has an effect. Its only effect is on the prompt, so the prompt without it must differ.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the chat template ignores the effort.
 */
async function requireEffort({ store, jobChat }: CreationContext, request: ChatCompletionRequest): Promise<void> {
  const chat = (await jobChat.value)(visibilityOf(store));
  const { reasoning_effort: _, ...withoutEffort } = request;
  const [defaultPrompt, requestedPrompt] = await Promise.all([chat.promptOf(withoutEffort), chat.promptOf(request)]);
  if (defaultPrompt.ids.join() !== requestedPrompt.ids.join()) return;
  throw new UnsupportedError(
    `The chat template of the base model \`${request.model}\` has no \`reasoning_effort\`: leave it out, or send "default"`,
    { param: `${METHOD_PATH}.hyperparameters.reasoning_effort` },
  );
}
