/** An OpenAI-compatible server that samples in place of the engine: what it serves, what it takes, and one request to it. */
import { Agent, type Dispatcher } from "undici";
import { z } from "zod";
import { ConfigError, EngineError, isAbort, OverloadedError } from "../../errors.ts";
import { describedFields, UpstreamCapabilities } from "./capabilities.ts";

/** Settings of an upstream. */
export interface UpstreamOptions {
  /** Address of the server, with or without `/v1`. */
  readonly url: string;
  /** Sent as a bearer token. @default none */
  readonly apiKey?: string | undefined;
  /** Base models that are sampled there: identifier here → name there. @default all base models it lists, by their own names */
  readonly models?: Readonly<Record<string, string>> | undefined;
  /**
   * Whether adapters are published to it: a checkpoint of an adapter on one of its base models is loaded there when it is first
   * asked for (vLLM with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`). Else adapters are sampled here. @default false
   */
  readonly adapters?: boolean | undefined;
  /** The data directory as the server sees it, where adapters are read from. @default the same path */
  readonly dataDir?: string | undefined;
  /** Adapters that stay loaded there while nobody samples them. @default 8 */
  readonly maxIdleAdapters?: number | undefined;
  /**
   * Fields beyond OpenAI's own that the server supports. They are forwarded without asking the server; needed only for a server that has
   * no `/openapi.json` and accepts invalid values. @default none
   */
  readonly supportedFields?: readonly string[] | undefined;
  /** Fields that the server accepts and ignores; requests that set them are refused. @default none */
  readonly refusedFields?: readonly string[] | undefined;
  /** How long the server may take to begin its answer, milliseconds. @default 600000 */
  readonly timeoutMs?: number | undefined;
}

/** What a server said to one request. */
export interface UpstreamAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly retryAfter: string | null;
  /** Read it to its end, or return: then the server is told that nobody listens. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** A server that samples. */
export interface Upstream {
  /** Identifier here → name there, of every base model that is sampled there. */
  readonly baseModels: ReadonlyMap<string, string>;
  readonly options: UpstreamOptions;
  /** Returns the context length in tokens of a base model by its identifier here; null if the server does not list it. */
  contextLengthOf(base: string): number | null;
  /** Fields of chat completions that the server acts on. */
  readonly capabilities: UpstreamCapabilities;
  /**
   * Posts a body and gives the answer as soon as it begins.
   *
   * @throws OverloadedError `E_OVERLOADED` when the server cannot be reached; the signal's own reason when that was aborted.
   */
  post(
    path: string,
    body: string,
    options: { readonly signal?: AbortSignal | undefined; readonly requestId?: string | undefined },
  ): Promise<UpstreamAnswer>;
  close(): Promise<void>;
}

const servedList = z.looseObject({
  data: z.array(z.looseObject({ id: z.string(), parent: z.string().nullish(), max_model_len: z.int().positive().nullish() })),
});
type ServedEntry = z.infer<typeof servedList>["data"][number];

const START_TIMEOUT_MS = 10_000;

/**
 * Connects to an upstream.
 *
 * @throws ConfigError `E_CONFIG` for an address that is none, a server that is not reached or refuses the key, and for a base model
 *   that it does not serve.
 */
export async function connectUpstream(options: UpstreamOptions): Promise<Upstream> {
  const url = URL.canParse(options.url) ? new URL(options.url) : null;
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new ConfigError(`Expected the upstream to be an http or https address, got \`${options.url}\``, { param: "upstream.url" });
  const root = url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
  const timeoutMs = options.timeoutMs ?? 600_000;
  // A stream may be silent for as long as its answer may take to begin.
  const agent = new Agent({ headersTimeout: timeoutMs, bodyTimeout: timeoutMs });
  const authorization = options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` };
  const get = async (path: string): Promise<{ status: number; body: unknown }> => {
    const { statusCode, body } = await agent.request({
      origin: url.origin,
      path: root + path,
      method: "GET",
      headers: authorization,
      headersTimeout: START_TIMEOUT_MS,
    });
    const text = await body.text();
    return { status: statusCode, body: statusCode === 200 ? parsed(text) : null };
  };
  try {
    const { models, entries } = await served(get, options);
    const lengths = new Map(entries.map((entry) => [entry.id, entry.max_model_len ?? null]));
    const described = describedFields((await get("/openapi.json").catch(() => null))?.body);
    const upstream: Upstream = {
      baseModels: models,
      options,
      contextLengthOf: (base) => lengths.get(models.get(base) ?? "") ?? null,
      capabilities: new UpstreamCapabilities({
        described,
        supportedFields: options.supportedFields,
        refusedFields: options.refusedFields,
        async ask(body) {
          const answer = await upstream.post("/v1/chat/completions", JSON.stringify(body), {
            signal: AbortSignal.timeout(START_TIMEOUT_MS),
          });
          await textOf(answer);
          return answer.status;
        },
      }),
      async post(path, body, { signal, requestId }) {
        let answer: Dispatcher.ResponseData;
        try {
          answer = await agent.request({
            origin: url.origin,
            path: root + path,
            method: "POST",
            headers: {
              ...authorization,
              "content-type": "application/json",
              ...(requestId === undefined ? {} : { "x-request-id": requestId }),
            },
            body,
            signal: signal ?? null,
          });
        } catch (cause) {
          signal?.throwIfAborted();
          if (isAbort(cause)) throw cause;
          throw new OverloadedError("The server that samples this model cannot be reached; send the request again in a moment", {
            cause,
            retryable: true,
          });
        }
        const header = (name: string): string | null => {
          const value = answer.headers[name];
          return Array.isArray(value) ? (value[0] ?? null) : (value ?? null);
        };
        return {
          status: answer.statusCode,
          contentType: header("content-type") ?? "application/json",
          retryAfter: header("retry-after"),
          body: answer.body as AsyncIterable<Uint8Array>,
        };
      },
      close: () => agent.destroy(),
    };
    return upstream;
  } catch (error) {
    await agent.destroy();
    throw error;
  }
}

async function served(
  get: (path: string) => Promise<{ readonly status: number; readonly body: unknown }>,
  { url, models }: UpstreamOptions,
): Promise<{ readonly models: ReadonlyMap<string, string>; readonly entries: readonly ServedEntry[] }> {
  const fail = (problem: string, cause?: unknown): never => {
    throw new ConfigError(`The upstream ${url} ${problem}`, { param: "upstream", cause });
  };
  const { status, body } = await get("/v1/models").catch((cause: unknown) => fail("cannot be reached", cause));
  if (status === 401 || status === 403) fail("refuses the key of this service; check `upstream.apiKey`");
  const list = servedList.safeParse(body);
  if (!list.success) return fail(`does not list its models: GET /v1/models answered ${status}`);
  // An entry with a parent is an adapter.
  const entries = list.data.data;
  const names = entries.filter(({ parent }) => parent === null || parent === undefined).map(({ id }) => id);
  if (models === undefined) return { models: new Map(names.map((name) => [name, name])), entries };
  const missing = Object.values(models).filter((name) => !entries.some(({ id }) => id === name));
  if (missing.length > 0) fail(`does not serve ${missing.join(", ")}; it serves ${names.join(", ")}`);
  return { models: new Map(Object.entries(models)), entries };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The text of an answer that is not streamed. @throws EngineError `E_ENGINE` when it breaks off. */
export async function textOf({ body }: UpstreamAnswer): Promise<string> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of body) chunks.push(chunk);
  } catch (cause) {
    if (isAbort(cause)) throw cause;
    throw new EngineError("The answer of the server that samples this model broke off", { cause });
  }
  return Buffer.concat(chunks).toString();
}
