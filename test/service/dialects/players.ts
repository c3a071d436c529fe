/** Players of a conversation through each API dialect: requests, and the histories that a client of the dialect keeps. */
import { createParser } from "eventsource-parser";

/** Service that the players talk to. */
export interface Target {
  readonly service: { readonly url: string; readonly apiKey: string };
  /** Sends the requests. @default globalThis.fetch */
  readonly fetch?: typeof globalThis.fetch;
  /** Fields of every request besides the conversation. @default token ids and log-probabilities */
  readonly extensions?: object;
}

/** An event of a stream. */
export interface SentEvent {
  readonly name: string | undefined;
  readonly data: any;
}

/** A turn as the client receives it. */
export interface Turn {
  readonly prompt: readonly number[];
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  /** Identifiers of the tool calls. */
  readonly calls: readonly string[];
}

/** Client of one dialect. */
export interface Player {
  readonly name: string;
  /** Adds a user's message. */
  say(text: string): void;
  /** Adds the results of tool calls. */
  returnResults(calls: readonly string[]): void;
  /** Asks for the next turn and adds it to the history. */
  ask(more: object, isStreamed: boolean): Promise<Turn>;
}

export const SYSTEM = "you talk";
const PARAMETERS = { type: "object", properties: {} };
const EXTENSIONS = { return_token_ids: true, logprobs: true };
const MAX_TOKENS = 400;

/** Sends a body and returns the parsed answer, or the events of a streamed one. */
export async function send(
  { service, fetch = globalThis.fetch }: Target,
  path: string,
  body: object,
  headers: Record<string, string> = { authorization: `Bearer ${service.apiKey}` },
): Promise<{ readonly status: number; readonly body: any; readonly events: readonly SentEvent[] }> {
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
  const response = await fetch(`${service.url}${path}`, init);
  const text = await response.text();
  const isStream = response.headers.get("content-type")!.startsWith("text/event-stream");
  const events: SentEvent[] = [];
  if (isStream) {
    const parser = createParser({
      onEvent: ({ event, data }) => events.push({ name: event, data: data === "[DONE]" ? data : JSON.parse(data) }),
    });
    parser.feed(text);
  }
  return { status: response.status, body: isStream ? null : JSON.parse(text), events };
}

async function ok(test: Target, path: string, body: object): ReturnType<typeof send> {
  const answer = await send(test, path, body);
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer;
}

const extensionsOf = ({ extensions = EXTENSIONS }: Target): object => extensions;
const numbers = (entries: readonly { logprob: number }[]): number[] => entries.map(({ logprob }) => logprob);

function chatPlayer(test: Target, model: string): Player {
  const messages: any[] = [{ role: "system", content: SYSTEM }];
  const tools = [{ type: "function", function: { name: "add", parameters: PARAMETERS } }];
  return {
    name: "chat",
    say: (content) => void messages.push({ role: "user", content }),
    returnResults: (calls) => void messages.push(...calls.map((id) => ({ role: "tool", tool_call_id: id, content: "done" }))),
    async ask(more) {
      const { body } = await ok(test, "/v1/chat/completions", {
        model,
        messages,
        tools,
        max_tokens: MAX_TOKENS,
        ...extensionsOf(test),
        ...more,
      });
      const [choice] = body.choices;
      const { content, tool_calls, reasoning } = choice.message;
      messages.push({ role: "assistant", content, tool_calls, reasoning });
      return {
        prompt: body.prompt_token_ids,
        ids: choice.token_ids,
        logprobs: numbers(choice.logprobs.content),
        calls: tool_calls.map((call: any) => call.id),
      };
    },
  };
}

/** Assembles a streamed message as the client of the Messages API does. */
export function assembledMessage(events: readonly SentEvent[]): any {
  const { message } = events[0]!.data;
  for (const { data } of events) {
    if (data.type === "content_block_start") message.content[data.index] = { ...data.content_block };
    const block = message.content[data.index];
    if (data.type === "content_block_delta") {
      if (data.delta.type === "input_json_delta") block.json = (block.json ?? "") + data.delta.partial_json;
      else for (const [key, value] of Object.entries(data.delta)) if (key !== "type") block[key] = (block[key] ?? "") + value;
    }
    if (data.type === "content_block_stop" && block.json !== undefined) {
      block.input = JSON.parse(block.json);
      delete block.json;
    }
    if (data.type === "message_delta") {
      const { type: _, delta, ...rest } = data;
      Object.assign(message, delta, rest);
    }
  }
  return message;
}

function messagesPlayer(test: Target, model: string): Player {
  const messages: any[] = [];
  const tools = [{ name: "add", input_schema: PARAMETERS }];
  let results: object[] = [];
  return {
    name: "messages",
    // Clients send tool results and the next text in one message.
    say: (text) => void messages.push({ role: "user", content: [...results.splice(0), { type: "text", text }] }),
    returnResults: (calls) => {
      results = calls.map((id) => ({ type: "tool_result", tool_use_id: id, content: [{ type: "text", text: "done" }] }));
    },
    async ask(more, isStreamed) {
      const own = { system: SYSTEM, max_tokens: MAX_TOKENS, ...extensionsOf(test), ...more, stream: isStreamed };
      const ask = { model, messages, tools, ...own };
      const { body, events } = await ok(test, "/v1/messages?beta=true", ask);
      const message = isStreamed ? assembledMessage(events) : body;
      messages.push({ role: "assistant", content: message.content });
      const calls = message.content.filter((block: any) => block.type === "tool_use").map((block: any) => block.id);
      return { prompt: message.prompt_token_ids, ids: message.token_ids, logprobs: message.logprobs, calls };
    },
  };
}

function responsesPlayer(test: Target, model: string, isStored: boolean): Player {
  let input: any[] = [];
  const tools = [{ type: "function", name: "add", parameters: PARAMETERS }];
  let previous: string | null = null;
  return {
    name: isStored ? "responses, stored" : "responses",
    say: (content) => void input.push({ role: "user", content }),
    returnResults: (calls) => void input.push(...calls.map((call_id) => ({ type: "function_call_output", call_id, output: "done" }))),
    async ask({ max_tokens, ...more }: any, isStreamed) {
      const own = { store: isStored, previous_response_id: previous, max_output_tokens: max_tokens ?? MAX_TOKENS };
      const ask = { model, input, instructions: SYSTEM, tools, ...extensionsOf(test), ...more, ...own, stream: isStreamed };
      const { body, events } = await ok(test, "/v1/responses", ask);
      const response = isStreamed ? events.at(-1)!.data.response : body;
      if (isStored) {
        previous = response.id;
        input = [];
      } else input.push(...response.output);
      const calls = response.output.filter((item: any) => item.type === "function_call").map((item: any) => item.call_id);
      return { prompt: response.prompt_token_ids, ids: response.token_ids, logprobs: response.logprobs, calls };
    },
  };
}

/** Sends token ids and returns the sampled turn with its text. */
type SampleTokens = (test: Target, ids: readonly number[], ask: any, isStreamed: boolean) => Promise<Turn & { readonly text: string }>;

/** Samples with `POST /v1/completions`, which shows no special tokens. */
const sampleCompletion: SampleTokens = async (test, prompt, ask, isStreamed) => {
  const { body, events } = await ok(test, "/v1/completions", { prompt, ...ask, logprobs: 1, return_token_ids: true, stream: isStreamed });
  const parts: any[] = isStreamed ? events.flatMap(({ data }) => (data === "[DONE]" ? [] : data.choices)) : body.choices;
  return {
    prompt: parts.find((part) => part.prompt_token_ids).prompt_token_ids,
    ids: parts.flatMap((part) => part.token_ids ?? []),
    logprobs: parts.flatMap((part) => part.logprobs?.token_logprobs ?? []),
    calls: [],
    text: parts.map(({ text }) => text).join(""),
  };
};

/** Samples with `POST /inference/v1/generate`, which returns no text. */
const generate: SampleTokens = async (test, token_ids, { model, ...sampling }) => {
  const { body } = await ok(test, "/inference/v1/generate", { model, token_ids, sampling_params: { ...sampling, logprobs: 1 } });
  const [{ token_ids: ids, logprobs, finish_reason: reason }] = body.choices;
  const shown = reason === "stop" ? ids.slice(0, -1) : ids;
  const text = shown.length === 0 ? "" : (await ok(test, "/detokenize", { model, tokens: shown })).body.prompt;
  return { prompt: body.prompt_token_ids, ids, logprobs: numbers(logprobs.content), calls: [], text };
};

/** Agent that adds the ids of its new text to the ids of the last prompt and answer. */
function concatenatingPlayer(name: string, sample: SampleTokens): (test: Target, model: string) => Player {
  return (test, model) => {
    let known: readonly number[] = [];
    let text = `${SYSTEM}\n`;
    return {
      name: `${name}, concatenated`,
      say: (said) => void (text += `\nuser: ${said}\nassistant: `),
      returnResults: () => void (text += "\ntool: done"),
      async ask(more, isStreamed) {
        const { tokens } = (await ok(test, "/tokenize", { model, prompt: text, add_special_tokens: false })).body;
        const turn = await sample(test, [...known, ...tokens], { model, max_tokens: MAX_TOKENS, ...more }, isStreamed);
        known = [...turn.prompt, ...turn.ids];
        text = "";
        return turn;
      },
    };
  };
}

/** Agent that renders its whole conversation with `POST /tokenize` in each turn. */
function renderingPlayer(name: string, sample: SampleTokens): (test: Target, model: string) => Player {
  return (test, model) => {
    const messages: object[] = [{ role: "system", content: SYSTEM }];
    return {
      name: `${name}, rendered`,
      say: (content) => void messages.push({ role: "user", content }),
      returnResults: () => undefined,
      async ask(more, isStreamed) {
        const { tokens } = (await ok(test, "/tokenize", { model, messages })).body;
        const turn = await sample(test, tokens, { model, max_tokens: MAX_TOKENS, ...more }, isStreamed);
        messages.push({ role: "assistant", content: turn.text });
        return turn;
      },
    };
  };
}

/** Agents that send token ids. */
export const TOKEN_PLAYERS: readonly ((test: Target, model: string) => Player)[] = [
  concatenatingPlayer("completions", sampleCompletion),
  concatenatingPlayer("generate", generate),
  renderingPlayer("completions", sampleCompletion),
  renderingPlayer("generate", generate),
];

/** Clients of all dialects with conversations. */
export const PLAYERS: readonly ((test: Target, model: string) => Player)[] = [
  chatPlayer,
  messagesPlayer,
  (test, model) => responsesPlayer(test, model, false),
  (test, model) => responsesPlayer(test, model, true),
];
