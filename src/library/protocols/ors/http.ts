/**
 * Requests to a server of the Open Reward Standard. Simple routes answer with JSON. Long operations answer with an event stream: first the
 * `task_id` of the operation, then its result in `chunk` events and a last `end` event, or an `error` event.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createParser, type EventSourceMessage } from "eventsource-parser";
import { request, type Dispatcher } from "undici";
import type { z } from "zod";
import { ConnectionError, HttpError, ProtocolError, readErrorBody } from "../../client/errors.ts";
import { readRetryAfter } from "../../client/retry.ts";
import { linkAbort } from "../../../base/util/abort.ts";
import { shown } from "../../../base/util/shown.ts";
import { parseJson } from "../../../base/util/values.ts";
import type { EnvironmentServerOptions } from "../episode/client-options.ts";
import { EnvironmentError } from "../episode/errors.ts";

/** Maximum number of times that a broken event stream is resumed by its `task_id`. */
const MAX_RESUMES = 3;

/** Wait before a request is repeated, without `Retry-After`, in milliseconds. */
const RETRY_DELAY_MS = 1000;

/** Server of the Open Reward Standard, and the settings of its requests. */
export type OrsServer = EnvironmentServerOptions;

/** Remedies for the error message by status. */
const REMEDIES: Readonly<Record<number, string>> = {
  400: "check the names of environment, split and task",
  401: "pass the key as `apiKey`",
  403: "check `apiKey`",
  404: "the environment or its session does not exist (sessions end after 15 minutes without a request); check `environment`, and set `retries`",
  410: "the session was deleted; set `retries`",
  422: "the server expects another body; it needs openreward 0.1.157 or newer",
};

/**
 * Sends a request and returns the parsed JSON of the response. Waits while the server answers 503 because an environment is starting.
 *
 * @throws HttpError `E_HTTP`, ConnectionError `E_CONNECTION`, ProtocolError `E_PROTOCOL`, a TimeoutError, or the signal's reason.
 */
export async function callOrs<T extends z.ZodType>(server: OrsServer, path: string, schema: T, body?: unknown): Promise<z.output<T>> {
  return timed(server, path, async (signal) => {
    const response = await send(server, path, body, signal);
    return parsedResponse(server, path, schema, await response.body.text());
  });
}

/**
 * Sends a request with an event stream as response, and returns its result. A stream that breaks after its `task_id` is resumed, which
 * does not repeat the operation.
 *
 * @throws EnvironmentError `E_ENVIRONMENT` for an `error` event; otherwise as {@link callOrs}.
 */
export async function callStream<T extends z.ZodType>(server: OrsServer, path: string, schema: T, body: object): Promise<z.output<T>> {
  return timed(server, path, async (signal) => {
    const { result } = await readStream(server, path, body, signal);
    return parsedResponse(server, path, schema, result);
  });
}

/** Opens a session. @returns its id: the `task_id` of the operation. */
export async function createSession(server: OrsServer): Promise<string> {
  return timed(server, "/create_session", async (signal) => (await readStream(server, "/create_session", {}, signal)).taskId);
}

/** Runs an operation within the server's timeout. @throws the signal's reason, a TimeoutError, or the error of `run`. */
async function timed<T>({ baseUrl, timeoutMs, signal }: OrsServer, path: string, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const link = linkAbort(signal, { timeoutMs, label: `${path} of the environment server ${baseUrl}` });
  try {
    return await run(link.signal);
  } catch (error) {
    link.signal.throwIfAborted();
    throw error;
  } finally {
    link.dispose();
  }
}

/** Sends a request and reads its event stream, resumed after a break. @returns the id of the operation and the JSON text of its result. */
async function readStream(server: OrsServer, path: string, body: object, signal: AbortSignal): Promise<{ taskId: string; result: string }> {
  /** Id of the operation; null until a stream has sent it. Only then can the operation be resumed. */
  let taskId: string | null = null;
  for (let attempt = 0; ; attempt++) {
    const events: OperationEvents = new OperationEvents(taskId);
    try {
      const response = await send(server, path, taskId === null ? body : { ...body, task_id: taskId }, signal);
      await events.read(response.body);
    } catch (error) {
      signal.throwIfAborted();
      taskId = events.taskId;
      if (taskId === null || attempt === MAX_RESUMES || error instanceof HttpError) throw error;
      continue;
    }
    taskId = events.taskId;
    if (events.failure !== null)
      throw new EnvironmentError(`Environment server ${server.baseUrl} failed ${path}: ${events.failure}; see the log of the server`, {
        reason: "error",
      });
    if (events.result !== null && taskId !== null) return { taskId, result: events.result };
    if (taskId === null || attempt === MAX_RESUMES) {
      throw new ConnectionError(`The event stream of ${path} of ${server.baseUrl} ended before its result`);
    }
  }
}

/** Events of one stream of an operation, up to the end or the break of the stream. */
class OperationEvents {
  /** Id of the operation; null until a stream has sent it. */
  taskId: string | null;
  /** JSON text of the result; null until the `end` event. */
  result: string | null = null;
  /** Message of the `error` event; null without one. */
  failure: string | null = null;
  /** Pieces of the result. A resumed stream sends the result from its start. */
  readonly #chunks: string[] = [];

  /** @param taskId - Id of the operation to resume; null for a new one. */
  constructor(taskId: string | null) {
    this.taskId = taskId;
  }

  /** Reads the stream. @throws the error of a stream that breaks; the events before the break are kept. */
  async read(body: AsyncIterable<Uint8Array>): Promise<void> {
    const parser = createParser({ onEvent: (event) => this.#add(event) });
    const decoder = new TextDecoder();
    for await (const piece of body) parser.feed(decoder.decode(piece, { stream: true }));
  }

  #add({ event, data }: EventSourceMessage): void {
    if (event === "task_id") this.taskId ??= data.trim();
    if (event === "error") this.failure = data;
    if (event === "chunk" || event === "end") this.#chunks.push(data);
    if (event === "end") this.result = this.#chunks.join("");
  }
}

/**
 * Sends a request, again while the server answers 503 because an environment is starting.
 *
 * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION`.
 */
async function send(server: OrsServer, path: string, body: unknown, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
  const url = server.baseUrl + path;
  for (;;) {
    const headers = { ...server.headers, ...(body === undefined ? {} : { "content-type": "application/json" }) };
    const response = await request(url, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal,
    }).catch((error: unknown) => {
      signal.throwIfAborted();
      const reason = error instanceof Error ? error.message || error.name : String(error);
      throw new ConnectionError(`Environment server ${url} is unreachable: ${reason}`, { cause: error });
    });
    const { statusCode } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    const text = await response.body.text();
    const retryAfterMs = readRetryAfter(headerOf(response, "retry-after"));
    if (statusCode === 503 && headerOf(response, "x-backend-state") === "starting") {
      await sleep(retryAfterMs ?? RETRY_DELAY_MS, undefined, { signal });
      continue;
    }
    const remedy = REMEDIES[statusCode] ?? "see the log of the server";
    throw new HttpError(`Environment server answered ${path} with ${statusCode}: ${detailOf(text)}; ${remedy}`, {
      status: statusCode,
      retryAfterMs,
      retryable: [404, 408, 410, 429, 500, 502, 503, 504].includes(statusCode),
    });
  }
}

/** Returns the first value of a response header. */
function headerOf({ headers }: Dispatcher.ResponseData, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Returns the reason in an error body, which FastAPI writes to `detail`. */
function detailOf(text: string): string {
  const { detail } = (parseJson(text) ?? {}) as { readonly detail?: unknown };
  return typeof detail === "string" ? detail : (readErrorBody(text).message ?? text.slice(0, 300));
}

/** Parses JSON with a schema. @throws ProtocolError `E_PROTOCOL` if it does not match. */
function parsedResponse<T extends z.ZodType>(server: OrsServer, path: string, schema: T, text: string): z.output<T> {
  const result = schema.safeParse(parseJson(text));
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new ProtocolError(
    `Expected ${path} of ${server.baseUrl} to answer as openreward 0.1 does; at \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "invalid"}, got ${shown(text)}`,
  );
}
