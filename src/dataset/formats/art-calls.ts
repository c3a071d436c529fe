/** Conversion of ART's exchanges to chat completions, from which `toHistories` reconstructs histories, as capture does. */
import { DataError } from "../../errors.ts";
import type { ChatCompletion, ChatCompletionRequest, Choice, LogprobEntry, RequestMessage } from "../../schema/index.ts";
import type { RecordedCall } from "../../trajectory/histories.ts";
import { shown } from "../../util/shown.ts";
import { chatTools, fromBlocks, fromItems, fromMessage, fromOutput, systemMessage } from "./art-messages.ts";
import type { ArtExchanges, ArtItem, ChatExchange, CompletionsExchange, MessagesExchange, ResponsesExchange } from "./art-schema.ts";

/** Call with the times by which calls are ordered. */
interface TimedCall {
  readonly start: number;
  readonly end: number;
  readonly model: string;
  readonly request: ChatCompletionRequest;
  readonly completion: ChatCompletion;
}

const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Tokens of a sampled turn. */
interface Tokens {
  readonly ids: readonly number[] | null | undefined;
  readonly logprobs: readonly number[] | null | undefined;
}

/**
 * Converts exchanges to calls in order of their start.
 *
 * @param model - Model of the calls to return; all calls must be of one model if undefined.
 * @param where - Beginning of every error message.
 * @throws DataError `E_DATA` for content that has no form as chat messages, or for several models.
 */
export function callsOf(exchanges: ArtExchanges, model: string | undefined, where: string): RecordedCall[] {
  const outputs = new Map(exchanges.responses.map((exchange) => [exchange.response.id, exchange]));
  const calls = [
    ...exchanges.chat_completions.map((each) => timed(each, chatCall(each))),
    ...exchanges.completions.map((each, index) => timed(each, completionCall(each, `${where}.completions.${index}`))),
    ...exchanges.responses.map((each, index) => timed(each, responseCall(each, outputs, `${where}.responses.${index}`))),
    ...exchanges.messages.map((each, index) => timed(each, messageCall(each, `${where}.messages.${index}`))),
  ];
  const models = [...new Set(calls.map((call) => call.model))];
  if (model === undefined && models.length > 1)
    throw new DataError(`${where}: expected exchanges of one model, got ${shown(models)}; set \`model\` to the trained model`);
  return calls
    .filter((call) => model === undefined || call.model === model)
    .toSorted((a, b) => a.start - b.start || a.end - b.end)
    .map(({ request, completion }, order) => ({ order, request, completion }));
}

function timed(
  {
    start_time: start,
    end_time: end,
    model,
  }: { readonly start_time: string; readonly end_time: string; readonly model?: string | null | undefined },
  call: Pick<TimedCall, "request" | "completion">,
): TimedCall {
  return { start: Date.parse(start), end: Date.parse(end), model: model ?? call.completion.model, ...call };
}

function chatCall({ request, response }: ChatExchange): Pick<TimedCall, "request" | "completion"> {
  const choices = response.choices.map((choice) => ({ ...choice, token_ids: choice.token_ids ?? idsIn(choice.logprobs?.content) }));
  // ART's servers state the prompt in each choice, where it is the same.
  const prompt = response.prompt_token_ids ?? (response.choices[0]?.["prompt_token_ids"] as number[] | null | undefined);
  return { request, completion: { ...response, usage: response.usage ?? NO_USAGE, choices, prompt_token_ids: prompt ?? null } };
}

/** Returns the identifiers of tokens written as `token_id:N`; null if any token has another form. */
function idsIn(entries: readonly LogprobEntry[] | null | undefined): number[] | null {
  const ids = (entries ?? []).map(({ token }) => /^token_id:(\d+)$/u.exec(token)?.[1]);
  return ids.length > 0 && ids.every((id) => id !== undefined) ? ids.map(Number) : null;
}

function messageCall({ request, response }: MessagesExchange, where: string): Pick<TimedCall, "request" | "completion"> {
  const { system, messages, tools, stop_sequences: stop, ...settings } = request;
  return {
    request: {
      ...settings,
      messages: [
        ...systemMessage(system),
        ...messages.flatMap((message, index) => fromMessage(message, `${where}.request.messages.${index}.content`)),
      ],
      tools: chatTools(tools),
      tool_choice: null,
      ...(Array.isArray(stop) ? { stop: stop as string[] } : {}),
    },
    completion: completionOf(response, response.prompt_token_ids, {
      index: 0,
      message: fromBlocks(response.content, `${where}.response.content`),
      finish_reason: finishReason(response.stop_reason),
      ...choiceTokens({ ids: response.token_ids, logprobs: response.logprobs }),
    }),
  };
}

function finishReason(reason: string | null | undefined): string | null {
  if (reason === "max_tokens") return "length";
  if (reason === "tool_use") return "tool_calls";
  return reason === "end_turn" || reason === "stop_sequence" ? "stop" : (reason ?? null);
}

function responseCall(
  exchange: ResponsesExchange,
  all: ReadonlyMap<string, ResponsesExchange>,
  where: string,
): Pick<TimedCall, "request" | "completion"> {
  const { request, response } = exchange;
  const { input: _, instructions, tools, previous_response_id: __, ...settings } = request;
  const generations = response.token_generations ?? [];
  if (generations.length > 1)
    throw new DataError(
      `${where}.response.token_generations: expected one generation, got ${generations.length}; tools must run in the client`,
    );
  const [generation] = generations;
  const message = fromOutput(response.output, `${where}.response.output`);
  const isCut = response.incomplete_details?.reason === "max_output_tokens";
  return {
    request: {
      ...settings,
      messages: [...systemMessage(instructions), ...fromItems(inputOf(exchange, all, where), `${where}.request.input`)],
      tools: chatTools(tools),
      tool_choice: null,
    },
    completion: completionOf(response, generation?.prompt_token_ids, {
      index: 0,
      message,
      finish_reason: isCut ? "length" : message.tool_calls ? "tool_calls" : "stop",
      ...choiceTokens({
        ids:
          generation?.token_ids ??
          generation?.output_tokens?.map(({ token_id: id, token }) => id ?? Number(token?.replace("token_id:", ""))),
        logprobs: generation?.output_tokens?.map(({ logprob }) => logprob),
      }),
    }),
  };
}

/** Returns the items of a response's conversation: of the previous responses, then its own. */
function inputOf({ request }: ResponsesExchange, all: ReadonlyMap<string, ResponsesExchange>, where: string): ArtItem[] {
  const own = typeof request.input === "string" ? [{ type: "message", role: "user", content: request.input }] : (request.input ?? []);
  const id = request.previous_response_id;
  if (id === null || id === undefined) return own;
  const previous = all.get(id);
  if (previous === undefined)
    throw new DataError(`${where}.request.previous_response_id: expected a response of the same trajectory, got ${shown(id)}`);
  return [...inputOf(previous, new Map([...all].filter(([key]) => key !== id)), where), ...previous.response.output, ...own];
}

function completionCall({ request, response }: CompletionsExchange, where: string): Pick<TimedCall, "request" | "completion"> {
  const { prompt, echo, ...settings } = request;
  if (echo === true)
    throw new DataError(`${where}.request.echo: expected false, got true; an echoed prompt is no part of the sampled turn`);
  const given = promptOf(prompt, `${where}.request.prompt`);
  const ids = response.prompt_token_ids ?? response.choices[0]?.prompt_token_ids ?? (typeof given === "string" ? null : given);
  const messages: RequestMessage[] = [{ role: "user", content: typeof given === "string" ? given : "" }];
  const choices = response.choices.map(({ index, text, finish_reason, token_ids, logprobs }) => ({
    index,
    message: { role: "assistant", content: text },
    finish_reason: finish_reason ?? null,
    ...choiceTokens({
      ids: token_ids ?? idsIn(logprobs?.tokens?.map((token) => ({ token, logprob: 0, top_logprobs: [] }))),
      logprobs: logprobs?.token_logprobs,
    }),
  }));
  // The numbers of log-probabilities and the tokens of the text API have other meanings in chat completions.
  const { logprobs: _, suffix: __, ...others } = settings;
  return { request: { ...others, messages }, completion: completionOf(response, ids, ...choices) };
}

/** Returns the prompt of a text completion. @throws DataError `E_DATA` for several prompts in one request. */
function promptOf(prompt: CompletionsExchange["request"]["prompt"], where: string): string | readonly number[] {
  if (typeof prompt === "string") return prompt;
  const [first] = prompt;
  if (typeof first === "number" || first === undefined) return prompt as number[];
  if (prompt.length > 1) throw new DataError(`${where}: expected one prompt, got ${prompt.length}; send each in a request of its own`);
  return first;
}

function completionOf(
  { id, model }: { readonly id: string; readonly model: string },
  prompt: readonly number[] | null | undefined,
  ...choices: Choice[]
): ChatCompletion {
  return { id, model, object: "chat.completion", created: 0, usage: NO_USAGE, choices, prompt_token_ids: prompt ? [...prompt] : null };
}

function choiceTokens({ ids, logprobs }: Tokens): Pick<Choice, "token_ids" | "logprobs"> {
  const content = logprobs?.map((logprob, at) => ({
    token: ids?.[at] === undefined ? "" : `token_id:${ids[at]}`,
    logprob,
    top_logprobs: [],
  }));
  return { token_ids: ids ? [...ids] : null, logprobs: content ? { content } : null };
}
