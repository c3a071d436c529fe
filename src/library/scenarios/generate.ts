/** Generation of scenarios by a model, from the tools and resources of an agent. */
import { ArgumentError, WhetstoneError } from "../../base/errors.ts";
import { checkInteger, refuse } from "../../base/util/values.ts";
import type { ChatCompletionRequest, RequestMessage, Tool } from "../../base/schema/index.ts";
import type { Policy } from "../../base/trajectory/index.ts";
import { checkedAnswer, type CheckedAnswer, type Rejection } from "./check-answer.ts";
import { batchMessages, responseFormat, retryMessage, type DifficultyRange } from "./prompt.ts";
import { MAX_DIFFICULTY, MIN_DIFFICULTY, normalizedTask, type ToolScenario } from "./scenario.ts";
import { sourcesOf, type ScenarioClient, type ScenarioResource } from "./sources.ts";

/** Options of {@link generateScenarios}. */
export interface GenerateScenariosOptions {
  /** Connected MCP client of the server with the agent's tools. Give either `client` or `tools`. @default none */
  readonly client?: ScenarioClient | undefined;
  /** Tools of the agent, such as the result of `mcpTools`. Give either `client` or `tools`. @default none */
  readonly tools?: readonly Tool[] | undefined;
  /** Resources that the agent can read. @default the client's resources, else none */
  readonly resources?: readonly ScenarioResource[] | undefined;
  /** Model that writes the tasks, such as a {@link Policy}; usually a larger model than the one to train. */
  readonly model: Pick<Policy, "id" | "complete">;
  /** Number of scenarios, at least 1. */
  readonly count: number;
  /** Scenarios that exist already: new ones have other tasks. They are not part of the result and do not count. @default [] */
  readonly existing?: readonly Pick<ToolScenario, "task">[] | undefined;
  /** Range of the difficulty; integers from 1 to 5. @default { min: 1, max: 5 } */
  readonly difficulty?: DifficultyRange | undefined;
  /** Further instructions to the model, such as the domain of the tasks. @default none */
  readonly instructions?: string | undefined;
  /** Max scenarios per request, at least 1. @default 10 */
  readonly batchSize?: number | undefined;
  /** Max requests, at least 1; retries count. @default two per batch, and two more */
  readonly maxRequests?: number | undefined;
  /** Seed of the first request, an integer; each later request has the next integer. @default requests without `seed` */
  readonly seed?: number | undefined;
  /**
   * Further fields of each request, such as `temperature`. They replace the generated fields except `model` and `messages`: endpoints
   * without JSON schemas accept `response_format: { type: "json_object" }`.
   *
   * @default {}
   */
  readonly request?: Readonly<Partial<ChatCompletionRequest>> | undefined;
  /** Whether to return fewer than `count` scenarios, instead of throwing, after `maxRequests` requests. @default false */
  readonly allowFewer?: boolean | undefined;
  /** Aborts the requests; the call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Result of {@link generateScenarios}. */
export interface GeneratedScenarios {
  /** Valid scenarios in order of generation, with different tasks. */
  readonly scenarios: readonly ToolScenario[];
  /** Rejected answers and scenarios, in order. */
  readonly rejected: readonly Rejection[];
  /** Number of requests sent. */
  readonly requests: number;
}

/**
 * Fewer scenarios than requested after the last request. {@link generateScenarios} throws it unless `allowFewer` is set; `result` has the
 * valid scenarios.
 *
 * @example
 * ```ts
 * try {
 *   await generateScenarios({ client, model: policy, count: 1000 });
 * } catch (error) {
 *   if (error instanceof TooFewScenariosError) console.log(error.result.scenarios.length);
 * }
 * ```
 */
export class TooFewScenariosError extends WhetstoneError {
  readonly code = "E_DATA";
  /** Scenarios and rejections up to the last request. */
  readonly result: GeneratedScenarios;

  /**
   * Created by {@link generateScenarios}.
   *
   * @internal
   */
  constructor(message: string, result: GeneratedScenarios) {
    super(message, { param: "maxRequests" });
    this.result = result;
  }
}

/** Requests that the default of `maxRequests` adds to two per batch. */
const SPARE_REQUESTS = 2;

/**
 * Generates scenarios for an agent with tools: asks a model for tasks that the tools can solve, in batches with structured output, and
 * checks every answer.
 *
 * A scenario is accepted if its task is not empty and differs from all others, its difficulty is in the range, and all its tool names exist.
 * Tasks are compared in Unicode NFKC and lower case, with single spaces and without punctuation at the end. Valid scenarios of an answer are
 * kept even if others are rejected. An answer with too few valid scenarios is retried once: the model receives its answer, the problems and
 * the number of missing scenarios. Then a new batch begins, until there are `count` scenarios or `maxRequests` requests were sent.
 *
 * @param options - Tools, model, number of scenarios and limits.
 * @returns The scenarios, all rejections with their reasons, and the number of requests.
 * @throws ArgumentError `E_ARGUMENT` for an invalid option, or without a tool.
 * @throws TooFewScenariosError `E_DATA` for fewer than `count` scenarios after `maxRequests` requests, unless `allowFewer` is set.
 * @throws ConfigError `E_CONFIG` if a list of the MCP server never ends.
 * @throws the signal's reason, or any error of the client or the model; earlier scenarios are then lost.
 * @example
 * ```ts
 * import { splitScenarios, writeScenarios } from "whetstone/scenarios";
 *
 * const { scenarios, rejected } = await generateScenarios({ client, model: policy, count: 50, difficulty: { min: 1, max: 3 } });
 * for (const { reason, message } of rejected) console.warn(reason, message);
 * const { train, eval: held } = splitScenarios(scenarios, { eval: 0.2 });
 * await writeScenarios("scenarios/train.jsonl", train);
 * await writeScenarios("scenarios/eval.jsonl", held);
 * ```
 */
export async function generateScenarios(options: GenerateScenariosOptions): Promise<GeneratedScenarios> {
  const { model, count, difficulty = { min: MIN_DIFFICULTY, max: MAX_DIFFICULTY }, instructions, batchSize = 10, seed } = options;
  const { maxRequests = 2 * Math.ceil(count / batchSize) + SPARE_REQUESTS, existing = [], request, allowFewer = false, signal } = options;
  checkNumbers({ count, batchSize, maxRequests, seed, difficulty });
  signal?.throwIfAborted();
  const sources = await sourcesOf(options);
  const toolNames = sources.tools.map(({ name }) => name);
  const scenarios: ToolScenario[] = [];
  const rejected: Rejection[] = [];
  /** Normalized tasks of the existing and the accepted scenarios; {@link checkedAnswer} adds the latter. */
  const known = new Set(existing.map(({ task }) => normalizedTask(task)));
  let requests = 0;

  /** Sends one request for `size` scenarios, and records the accepted and the rejected ones. */
  const ask = async (messages: RequestMessage[], size: number): Promise<CheckedAnswer> => {
    signal?.throwIfAborted();
    const body: ChatCompletionRequest = {
      ...(seed === undefined ? {} : { seed: seed + requests }),
      response_format: responseFormat(size, toolNames, difficulty),
      ...request,
      model: model.id,
      messages,
    };
    requests++;
    const completion = await model.complete(body, signal === undefined ? {} : { signal });
    const answer = checkedAnswer(completion, { size, toolNames: new Set(toolNames), difficulty, known });
    scenarios.push(...answer.accepted);
    rejected.push(...answer.problems.map((problem) => ({ request: requests, ...problem })));
    return answer;
  };

  while (scenarios.length < count && requests < maxRequests) {
    const size = Math.min(batchSize, count - scenarios.length);
    const earlier = [...existing, ...scenarios].map(({ task }) => task);
    const messages = batchMessages({ ...sources, size, difficulty, instructions, earlier });
    const { text, accepted, problems } = await ask(messages, size);
    const missing = size - accepted.length;
    if (missing === 0 || requests === maxRequests) continue;
    const problemTexts = problems.map(({ message }) => message);
    const correction = retryMessage(problemTexts, accepted.length, missing);
    await ask([...messages, { role: "assistant", content: text }, correction], missing);
  }
  const result = { scenarios, rejected, requests };
  if (scenarios.length < count && !allowFewer) throw tooFewError(result, count);
  return result;
}

/** Creates the error of a call without enough scenarios, with the number of rejections by reason. */
function tooFewError(result: GeneratedScenarios, count: number): TooFewScenariosError {
  const { scenarios, rejected, requests } = result;
  const counts = new Map<string, number>();
  for (const { reason } of rejected) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const reasons = [...counts].map(([reason, number]) => `${number} ${reason}`).join(", ");
  const lastMessage = rejected.at(-1)?.message ?? "";
  return new TooFewScenariosError(
    `Expected ${count} scenarios, got ${scenarios.length} after ${requests} requests; rejected: ${reasons} (last: ${lastMessage}). ` +
      "Raise `maxRequests`, ask for fewer, or set `allowFewer`; `result.scenarios` of this error has the valid ones",
    result,
  );
}

/** Numeric options of {@link generateScenarios}, with their defaults. */
type NumberOptions = Required<Pick<GenerateScenariosOptions, "count" | "batchSize" | "maxRequests" | "difficulty">> &
  Pick<GenerateScenariosOptions, "seed">;

/** @throws ArgumentError `E_ARGUMENT` for a number out of range. */
function checkNumbers({ seed, difficulty, ...counts }: NumberOptions): void {
  for (const [param, value] of Object.entries(counts)) checkInteger(param, value as number, 1);
  if (seed !== undefined && !Number.isSafeInteger(seed)) refuse("seed", "an integer", seed);
  const { min, max } = difficulty ?? {};
  const isInRange = (value: unknown) => Number.isInteger(value) && Number(value) >= MIN_DIFFICULTY && Number(value) <= MAX_DIFFICULTY;
  if (isInRange(min) && isInRange(max) && Number(min) <= Number(max)) return;
  const expected = `integers with ${MIN_DIFFICULTY} ≤ min ≤ max ≤ ${MAX_DIFFICULTY}`;
  throw new ArgumentError(`Expected \`difficulty\` to have ${expected}, got { min: ${min}, max: ${max} }`, { param: "difficulty" });
}
