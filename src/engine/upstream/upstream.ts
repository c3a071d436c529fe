/** Client of an OpenAI-compatible server that samples in place of the engine: served models, supported fields, and requests. */
import { Agent, type Dispatcher } from "undici";
import { z } from "zod";
import { ConfigError, EngineError, isAbort, OverloadedError } from "../../base/errors.ts";
import { describedFields, UpstreamCapabilities } from "./capabilities.ts";
import { parseJson } from "../../base/util/values.ts";

/** Settings of an upstream. */
export interface UpstreamOptions {
  /**
   * Address of the server, with or without `/v1`; several addresses of servers that sample the same models, to share the requests among
   * them.
   */
  readonly url: string | readonly string[];
  /** API key, sent as a bearer token. @default none */
  readonly apiKey?: string | undefined;
  /** Base models to sample on the server: local identifier → name on the server. @default all base models that the server lists */
  readonly models?: Readonly<Record<string, string>> | undefined;
  /**
   * Whether the server samples adapters: a checkpoint of an adapter on one of its base models is loaded there at the first request for
   * it (vLLM with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`). If false, the local engine samples adapters. @default false
   */
  readonly adapters?: boolean | undefined;
  /** Path of the data directory on the server, from which the server reads adapters. @default the local path */
  readonly dataDir?: string | undefined;
  /** Maximum number of unused adapters that stay loaded on the server. @default 8 */
  readonly maxIdleAdapters?: number | undefined;
  /**
   * Fields beyond OpenAI's own that the server supports. They are forwarded without asking the server; needed only for a server that has
   * no `/openapi.json` and accepts invalid values. @default none
   */
  readonly supportedFields?: readonly string[] | undefined;
  /** Fields that the server accepts and ignores; requests that set them are refused. @default none */
  readonly refusedFields?: readonly string[] | undefined;
  /** Maximum time until a response begins, and between two pieces of its body, in milliseconds. @default 600000 */
  readonly timeoutMs?: number | undefined;
}

/** Response of the server to one request. */
export interface UpstreamAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly retryAfter: string | null;
  /** Response body. Read it to its end; leaving the loop earlier closes the connection. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Connection to a server that samples. */
export interface Upstream {
  /** Address of the server. */
  readonly url: string;
  /** Base models that the server samples: local identifier → name on the server. */
  readonly baseModels: ReadonlyMap<string, string>;
  readonly options: UpstreamOptions;
  /** Returns the context length in tokens of a base model by its local identifier; null if the server does not list the length. */
  contextLengthOf(base: string): number | null;
  /** Fields of chat completions that the server acts on. */
  readonly capabilities: UpstreamCapabilities;
  /**
   * Posts a JSON body and returns the response as soon as its headers arrive, also for an error status.
   *
   * @param path - Path below the server's root, such as `/v1/chat/completions`.
   * @throws OverloadedError `E_OVERLOADED` if the server cannot be reached; the signal's reason if the signal was aborted.
   */
  post(
    path: string,
    body: string,
    options: { readonly signal?: AbortSignal | undefined; readonly requestId?: string | undefined },
  ): Promise<UpstreamAnswer>;
  /** Closes the connection; requests in progress fail. */
  close(): Promise<void>;
}

/** Answer of `/v1/models`, with vLLM's context lengths and, for adapters, their base models. */
const servedList = z.looseObject({
  data: z.array(z.looseObject({ id: z.string(), parent: z.string().nullish(), max_model_len: z.int().positive().nullish() })),
});
/** Model or adapter that the server lists. */
type ServedEntry = z.infer<typeof servedList>["data"][number];

/** Timeout of requests that read the server's properties, in milliseconds. */
const START_TIMEOUT_MS = 10_000;

/**
 * Connects to one server.
 *
 * @param address - Address of the server, with or without `/v1`.
 * @returns Connection; call `close` to end it.
 * @throws ConfigError `E_CONFIG` if `url` is not an http or https address, if the server cannot be reached or rejects the key, or if it
 *   does not serve one of `models`.
 */
export async function connectUpstream(address: string, options: UpstreamOptions): Promise<Upstream> {
  const http = new HttpClient(address, options);
  try {
    const { models, entries } = await readServedModels(http, { url: address, models: options.models });
    const lengths = new Map(entries.map((entry) => [entry.id, entry.max_model_len ?? null]));
    const openApi = await http.get("/openapi.json").catch(() => null);
    return {
      url: address,
      baseModels: models,
      options,
      contextLengthOf: (base) => lengths.get(models.get(base) ?? "") ?? null,
      capabilities: new UpstreamCapabilities({
        described: describedFields(openApi?.body),
        supportedFields: options.supportedFields,
        refusedFields: options.refusedFields,
        async ask(body) {
          const signal = AbortSignal.timeout(START_TIMEOUT_MS);
          const answer = await http.post("/v1/chat/completions", JSON.stringify(body), { signal });
          await upstreamText(answer);
          return answer.status;
        },
      }),
      post: (path, body, postOptions) => http.post(path, body, postOptions),
      close: () => http.close(),
    };
  } catch (error) {
    await http.close();
    throw error;
  }
}

/** Requests to one server. */
class HttpClient {
  readonly #agent: Agent;
  readonly #origin: string;
  /** Path of the server's root, without `/v1`. */
  readonly #rootPath: string;
  readonly #authorization: Readonly<Record<string, string>>;

  /** @throws ConfigError `E_CONFIG` if `address` is not an http or https address. */
  constructor(address: string, { apiKey, timeoutMs = 600_000 }: UpstreamOptions) {
    const url = URL.canParse(address) ? new URL(address) : null;
    if (url === null || !/^https?:$/.test(url.protocol))
      throw new ConfigError(`Expected the upstream to be an http or https address, got \`${address}\``, { param: "upstream.url" });
    this.#origin = url.origin;
    this.#rootPath = url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
    this.#authorization = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    // A stream may pause for as long as a response may take to begin.
    this.#agent = new Agent({ headersTimeout: timeoutMs, bodyTimeout: timeoutMs });
  }

  /** Reads a JSON document; `body` is null for another status than 200, and for text that is not JSON. */
  async get(path: string): Promise<{ readonly status: number; readonly body: unknown }> {
    const { statusCode, body } = await this.#agent.request({
      origin: this.#origin,
      path: this.#rootPath + path,
      method: "GET",
      headers: this.#authorization,
      headersTimeout: START_TIMEOUT_MS,
    });
    const text = await body.text();
    return { status: statusCode, body: statusCode === 200 ? (parseJson(text) ?? null) : null };
  }

  /** See {@link Upstream.post}. */
  async post(path: string, body: string, { signal, requestId }: Parameters<Upstream["post"]>[2]): Promise<UpstreamAnswer> {
    let answer: Dispatcher.ResponseData;
    try {
      answer = await this.#agent.request({
        origin: this.#origin,
        path: this.#rootPath + path,
        method: "POST",
        headers: {
          ...this.#authorization,
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
  }

  /** Closes the connections; requests in progress fail. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** Reads the models that the server lists, and returns the base models to sample there with all entries of the list. */
async function readServedModels(
  http: HttpClient,
  { url, models }: { readonly url: string; readonly models: UpstreamOptions["models"] },
): Promise<{ readonly models: ReadonlyMap<string, string>; readonly entries: readonly ServedEntry[] }> {
  const fail = (problem: string, cause?: unknown): never => {
    throw new ConfigError(`The upstream ${url} ${problem}`, { param: "upstream", cause });
  };
  const { status, body } = await http.get("/v1/models").catch((cause: unknown) => fail("cannot be reached", cause));
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

/** Reads a response body as text. @throws EngineError `E_ENGINE` if the connection breaks before the end of the body. */
export async function upstreamText({ body }: UpstreamAnswer): Promise<string> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of body) chunks.push(chunk);
  } catch (cause) {
    if (isAbort(cause)) throw cause;
    throw new EngineError("The answer of the server that samples this model broke off", { cause });
  }
  return Buffer.concat(chunks).toString();
}
