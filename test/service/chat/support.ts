/** A real server on port 0 with the chat routes, the shipped tokenizer and a scripted engine. */
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach } from "vitest";
import type { BaseModelInfo, Engine } from "../../../src/engine/port.ts";
import { NotFoundError } from "../../../src/base/errors.ts";
import { errorBody } from "../../../src/base/schema/index.ts";
import type { ServiceLogger } from "../../../src/service/common/logger.ts";
import type { PolicyLease } from "../../../src/service/models/policies.ts";
import type { ServiceEnvironment } from "../../../src/service/http/body.ts";
import { register } from "../../../src/service/openapi/route.ts";
import type { ChatLimits } from "../../../src/service/chat/generate/admit.ts";
import { ChatService } from "../../../src/service/chat/service.ts";
import { createWork } from "../../../src/service/create-work.ts";
import { presentedKey } from "../../../src/service/http/auth.ts";
import { servicePrincipal } from "../../../src/service/http/principal.ts";
import { chatRoutes } from "../../../src/service/routes/chat.ts";
import { TimeSlices } from "../../../src/base/util/time-slices.ts";
import type { DialectContext } from "../../../src/service/dialects/handler.ts";
import { createScriptedEngine, type SampleScriptInput, type ScriptedCall, type ScriptedEngine } from "../../../src/testing/index.ts";
import { loadTokenizer, type ChatTokenizer } from "../../../src/text/tokenizer/index.ts";

export const MODEL_DIRECTORY = fileURLToPath(new URL("../../../models/whetstone-tiny", import.meta.url));
export const tokenizer: ChatTokenizer = await loadTokenizer(MODEL_DIRECTORY);
/** Returns ids that spell a text letter by letter, unlike the encoder for known words. */
export const spelled = (text: string): number[] => [...text].flatMap((letter) => [...tokenizer.encode(letter)]);
export const END = tokenizer.eosTokenIds[0]!;
export const CONTEXT = 100;
/** Existing models, with their resolved names. */
export const MODELS: Readonly<Record<string, string>> = {
  "demo/chat/reverse": "demo/chat/reverse:step7",
  "demo/chat/reverse:step3": "demo/chat/reverse:step3",
  "demo/chat/other": "demo/chat/other:step0",
};

export interface ChatServerOptions {
  /** Output of the engine, as text or ids; the end token is appended unless the limit is reached first. */
  readonly says?: string | readonly number[] | ((input: SampleScriptInput) => string | readonly number[]) | undefined;
  readonly before?: ((call: ScriptedCall, options: { readonly signal?: AbortSignal | undefined }) => void | Promise<void>) | undefined;
  readonly limits?: ChatLimits | undefined;
  readonly directory?: string | undefined;
  readonly contextLength?: number | undefined;
  readonly wrap?: ((engine: Engine) => Engine) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ChatServer {
  readonly url: string;
  readonly engine: ScriptedEngine;
  /** Time slices that the routes and the chat service share. */
  readonly slices: TimeSlices;
  readonly log: { readonly level: string; readonly message: string; readonly fields: unknown }[];
  /** Returns the number of leases that are not released. */
  openLeases(): number;
  post(
    body: unknown,
    init?: { readonly headers?: Record<string, string>; readonly signal?: AbortSignal; readonly path?: string },
  ): Promise<Response>;
  /** Returns the parsed response to a request that must succeed. */
  complete(body: unknown, init?: { readonly headers?: Record<string, string> }): Promise<any>;
  close(): Promise<void>;
}

/** Starts a server; the caller closes it. */
export async function startChatServer(options: ChatServerOptions = {}): Promise<ChatServer> {
  const { says = "hello" } = options;
  const base: BaseModelInfo = {
    id: "whetstone-tiny",
    directory: options.directory ?? MODEL_DIRECTORY,
    vocabularySize: tokenizer.vocabularySize,
    contextLength: options.contextLength ?? CONTEXT,
    parameters: 1,
  };
  const engine = createScriptedEngine({
    bases: [base],
    script: (input) => {
      const said = typeof says === "function" ? says(input) : says;
      return typeof said === "string" ? [...tokenizer.encode(said)] : said;
    },
    before: options.before,
  });
  const policy = await engine.loadPolicy({ base: base.id });
  const log: ChatServer["log"] = [];
  const write = (level: string) => (message: string, fields?: unknown) => void log.push({ level, message, fields });
  const logger: ServiceLogger = { info: write("info"), warn: write("warn"), error: write("error") };
  let openLeases = 0;
  const work = createWork(() => Promise.resolve(tokenizer));
  const app = new Hono<ServiceEnvironment>();
  const slices = new TimeSlices();
  const dialects: DialectContext = {
    translator: work.translator,
    slices,
    pipeline: new ChatService({
      slices,
      engine: options.wrap?.(engine) ?? engine,
      tokenizers: () => Promise.resolve(tokenizer),
      policies: {
        resolvePolicy: (name): Promise<PolicyLease> => {
          const resolvedName = name ? MODELS[name] : "whetstone-tiny";
          if (resolvedName === undefined)
            return Promise.reject(new NotFoundError(`The model '${name}' does not exist`, { param: "model" }));
          openLeases++;
          let isOpen = true;
          return Promise.resolve({
            policy,
            resolvedName,
            model: null,
            step: null,
            base,
            release: () => {
              if (isOpen) openLeases--;
              isOpen = false;
            },
          });
        },
      },
      work: work.chat,
      limits: options.limits,
      signal: options.signal,
      logger,
    }),
  };
  app.use((c, next) => {
    const key = presentedKey(c.env.incoming.headers) ?? "";
    c.set("principal", { ...servicePrincipal(key), id: key });
    return next();
  });
  register(app, chatRoutes(dialects));
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const post: ChatServer["post"] = (body, init = {}) =>
    fetch(`${url}${init.path ?? "/v1/chat/completions"}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...init.headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...(init.signal ? { signal: init.signal } : {}),
    });
  return {
    url,
    engine,
    slices,
    log,
    openLeases: () => openLeases,
    post,
    complete: async (body, init) => {
      const response = await post(body, init);
      const parsed = await response.json();
      if (response.status !== 200) throw new Error(`Expected 200, got ${response.status}: ${JSON.stringify(parsed)}`);
      return parsed;
    },
    close: async () => {
      server.close();
      (server as { closeAllConnections?(): void }).closeAllConnections?.();
      await once(server, "close");
      await work.close();
    },
  };
}

/** Returns a function that starts servers, which are closed after each test. Call it once per file, outside tests. */
export function chatServers(): (options?: ChatServerOptions) => Promise<ChatServer> {
  const started: ChatServer[] = [];
  afterEach(async () => {
    for (const server of started.splice(0)) await server.close();
  });
  return async (options) => {
    const server = await startChatServer(options);
    started.push(server);
    return server;
  };
}

/** Error response. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: unknown;
}

/** Starts a server for a test file, closed after the file, with helpers. Call it once per file, outside tests. */
export async function useChatServer(options: ChatServerOptions = {}): Promise<{
  readonly server: ChatServer;
  readonly start: (options?: ChatServerOptions) => Promise<ChatServer>;
  /** Returns the error of a request that must fail: {@link HELLO} with `body`. */
  readonly refusal: (body: object, target?: ChatServer) => Promise<Refusal>;
  /** Returns the parameters of the engine's last call of `sample`. */
  readonly lastParams: (target?: ChatServer) => any;
}> {
  const server = await startChatServer(options);
  afterAll(() => server.close());
  return {
    server,
    start: chatServers(),
    async refusal(body, target = server) {
      const response = await target.post({ ...HELLO, ...body });
      return { status: response.status, ...errorBody.parse(await response.json()).error };
    },
    lastParams: (target = server) => (target.engine.calls.findLast((call) => call.verb === "sample")!.detail as { params: unknown }).params,
  };
}

export const HELLO = { messages: [{ role: "user", content: "hi" }] };

/** Returns the prompt ids of `messages`. */
export function promptIds(messages: readonly { role: string; content: string }[]): number[] {
  return [...tokenizer.encode(tokenizer.renderChat(messages))];
}

/** Returns the events of a stream: parsed chunks, and whether `[DONE]` is last. */
export async function readEvents(response: Response): Promise<{ readonly chunks: any[]; readonly isDone: boolean }> {
  const lines = (await response.text()).split("\n\n");
  if (lines.pop() !== "") throw new Error("The stream does not end with a blank line");
  const events = lines.map((line) => {
    if (!line.startsWith("data: ") || line.includes("\n")) throw new Error(`Not one data line: ${line}`);
    return line.slice("data: ".length);
  });
  const isDone = events.at(-1) === "[DONE]";
  return { chunks: (isDone ? events.slice(0, -1) : events).map((event) => JSON.parse(event)), isDone };
}

/** Joins the chunks of one choice of a stream. */
export function joinChoice(chunks: readonly any[], index = 0) {
  const parts = chunks.flatMap((chunk) => chunk.choices ?? []).filter((choice) => choice.index === index);
  const toolCalls: any[] = [];
  for (const call of parts.flatMap((part) => part.delta.tool_calls ?? [])) {
    if (call.id) toolCalls[call.index] = { id: call.id, type: call.type, function: { name: call.function.name, arguments: "" } };
    toolCalls[call.index].function.arguments += call.function.arguments ?? "";
  }
  return {
    role: parts.map((part) => part.delta.role ?? "").join(""),
    content: parts.map((part) => part.delta.content ?? "").join(""),
    tokenIds: parts.flatMap((part) => part.token_ids ?? []),
    logprobs: parts.flatMap((part) => part.logprobs?.content ?? []),
    finishes: parts.filter((part) => part.finish_reason !== null).map((part) => part.finish_reason),
    stopReason: parts.at(-1)?.stop_reason,
    toolCalls,
    parts,
  };
}

/** Waits until `isTrue`, or throws an error with `label`. */
export async function until(isTrue: () => boolean, label: string): Promise<void> {
  for (let turn = 0; turn < 2000; turn++) {
    if (isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`Waited in vain until ${label}`);
}
