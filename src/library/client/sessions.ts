/** The `sessions` resource of the client: a key per rollout, with which an agent samples a policy while the service records it. */
import {
  createdSession,
  createSessionRequest,
  deleteSessionResponse,
  session,
  sessionList,
  sessionUrls,
  sessionWithTrajectory,
  type Session as WireSession,
  type SessionSampling as WireSampling,
  type Trajectory,
} from "../../base/schema/index.ts";
import { snakeCase } from "../../base/util/letter-case.ts";
import { callJson, LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { parseResponse } from "./options.ts";
import { allPages, type ListOptions } from "./pages.ts";
import { fromWire, toWire, type CamelKeys } from "./wire.ts";

/** Sampling fields of chat completions that a session sets, in camelCase. */
export type SessionSampling = CamelKeys<WireSampling>;

/** Base URLs of a session. */
export interface SessionUrls {
  /** Base URL of OpenAI clients, which send the session key as the API key. */
  readonly openai: string;
  /** Base URL of Anthropic clients, which send the session key as the API key. */
  readonly anthropic: string;
  /** Base URL of OpenAI clients that send any other API key: the path holds the session key; without `key`, the session id. */
  readonly openaiPath: string;
  /** Base URL of Anthropic clients that send any other API key: the path holds the session key; without `key`, the session id. */
  readonly anthropicPath: string;
  /** URL of the session; `/reward`, `/metrics` and `/finish` below it accept the session key. */
  readonly session: string;
}

/** A session: a key with which an agent of any kind samples one policy. */
export interface SessionInfo extends Readonly<Pick<WireSession, "id" | "key" | "model" | "status" | "reward" | "requests" | "tokens">> {
  /** Base URLs for the agent. */
  readonly urls: SessionUrls;
  /** Measurements of the rollout by name. */
  readonly metrics: Readonly<Record<string, number | boolean>>;
  /** Labels of the trajectory by name. */
  readonly metadata: Readonly<Record<string, number | string | boolean | null>>;
  /** Creation time, ISO 8601. */
  readonly createdAt: string;
  /** Time until which requests are accepted, ISO 8601. */
  readonly openUntil: string;
  /** Time at which the session is deleted, ISO 8601. */
  readonly expiresAt: string;
}

/** A session that was just created, with its key. */
export interface CreatedSessionInfo extends SessionInfo {
  /** API key of the session. No other call returns it. */
  readonly key: string;
}

/** Model, sampling fields and limits of the session that `sessions.create` creates. */
export interface CreateSessionOptions extends CallOptions {
  /** Model that every request of the session samples, instead of the model that it names; e.g. `policy.id`. */
  readonly model: string;
  /** Fields of requests that do not set them. @default none */
  readonly samplingDefaults?: SessionSampling | undefined;
  /** Fields of all requests, instead of the values that requests set. @default none */
  readonly samplingOverrides?: SessionSampling | undefined;
  /** Labels of the trajectory by name. @default none */
  readonly metadata?: Readonly<Record<string, number | string | boolean | null>> | undefined;
  /** Max sampled requests, 1 to 100 000. @default 1000 */
  readonly maxRequests?: number | undefined;
  /** Max sampled tokens of all requests. @default no limit */
  readonly maxTokens?: number | undefined;
  /** Seconds after the creation in which requests are accepted, at most 7 days. @default 3600 */
  readonly maxSeconds?: number | undefined;
  /** Seconds after the creation at which the session is deleted, 1 second to 1 year. @default 86 400 */
  readonly expiresInSeconds?: number | undefined;
}

/** Filters and number of the sessions that `sessions.list` returns. */
export interface ListSessionsOptions extends ListOptions {
  /** Only sessions of this model, as named at the creation. @default all */
  readonly model?: string | undefined;
}

/** Options of `sessions.get`. */
export interface ReadSessionOptions extends CallOptions {
  /** Max seconds to wait until the session is no longer open, 0 to 30. @default 0 */
  readonly waitSeconds?: number | undefined;
}

/** Reward and metrics of a rollout, from its agent or its trainer. */
export interface SessionScore {
  /** Reward of the rollout, finite. @default the reward set before */
  readonly reward?: number | undefined;
  /** Measurements of the rollout by name, added to earlier ones. @default none */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
}

/**
 * The `sessions` resource (an extension): agents that run anywhere sample a policy with a key of their own, and the service records the
 * trajectory. `capture.session` plays a whole rollout with it.
 *
 * @example
 * ```ts
 * const session = await service.sessions.create({ model: policy.id, samplingDefaults: { temperature: 1 }, maxSeconds: 600 });
 * console.log(session.urls.openai, session.key); // for the agent, which ends with POST {urls.session}/finish {"reward": 1}
 * const { status, reward } = await service.sessions.wait(session.id);
 * const { messages_and_choices: turns } = await service.sessions.trajectory(session.id);
 * await service.sessions.delete(session.id);
 * ```
 */
export interface Sessions {
  /**
   * Creates a session. A repeated request after a lost response may leave an unused session, which expires.
   *
   * @param options - Model, sampling fields, limits, signal and time limit.
   * @returns the open session with its key and base URLs.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unknown model.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  create(options: CreateSessionOptions): Promise<CreatedSessionInfo>;
  /**
   * Lists sessions, fetching all pages.
   *
   * @param options - Model, number, signal and time limit.
   * @returns the sessions, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const open = (await service.sessions.list({ model: policy.id })).filter(({ status }) => status === "open");
   * ```
   */
  list(options?: ListSessionsOptions): Promise<SessionInfo[]>;
  /**
   * Returns a session without its trajectory.
   *
   * @param sessionId - ID of the session.
   * @param options - Wait, signal and time limit.
   * @returns the session.
   * @throws HttpError `E_HTTP` for an error status, 404 for a session that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { requests, tokens } = await service.sessions.get("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d");
   * ```
   */
  get(sessionId: string, options?: ReadSessionOptions): Promise<SessionInfo>;
  /**
   * Returns the trajectory of a session's requests so far, with token ids and log-probabilities.
   *
   * @param sessionId - ID of the session.
   * @param options - Signal and time limit.
   * @returns the wire form, for `Trajectory.fromJSON`; its reward is 0 until the session has one.
   * @throws HttpError `E_HTTP` for an error status, 404 for a session that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  trajectory(sessionId: string, options?: CallOptions): Promise<Trajectory>;
  /**
   * Waits until a session is no longer open: finished by the agent, or timed out.
   *
   * @param sessionId - ID of the session.
   * @param options - Signal and time limit.
   * @returns the session, `finished` or `timed_out`.
   * @throws HttpError `E_HTTP` for an error status, 404 for a session that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; the signal's reason, or a `TimeoutError`.
   */
  wait(sessionId: string, options?: CallOptions): Promise<SessionInfo>;
  /**
   * Sets the reward of a session and adds metrics, also after its end.
   *
   * @param sessionId - ID of the session.
   * @param score - Reward and metrics; an empty score changes nothing.
   * @param options - Signal and time limit.
   * @returns the changed session.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * await service.sessions.score("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d", { reward: 0.5, metrics: { judged: true } });
   * ```
   */
  score(sessionId: string, score: SessionScore, options?: CallOptions): Promise<SessionInfo>;
  /**
   * Finishes a session: running requests are cancelled, and no further ones accepted.
   *
   * @param sessionId - ID of the session.
   * @param score - Reward and metrics.
   * @param options - Signal and time limit.
   * @returns the finished session.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { reward } = await service.sessions.finish("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d", { reward: 1 });
   * ```
   */
  finish(sessionId: string, score?: SessionScore, options?: CallOptions): Promise<SessionInfo>;
  /**
   * Deletes a session with its trajectory. Running requests are cancelled.
   *
   * @param sessionId - ID of the session.
   * @param options - Signal and time limit.
   * @throws HttpError `E_HTTP` for an error status, 404 for a session that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(sessionId: string, options?: CallOptions): Promise<void>;
}

const PATH = "/v1/preview/sessions";
/** Seconds for which the service holds one request of {@link Sessions.wait}; its maximum. */
const WAIT_SECONDS = 30;

/** Schema of the wire fields of {@link SessionInfo}. */
const sessionFields = session.omit({
  sampling_defaults: true,
  sampling_overrides: true,
  max_requests: true,
  max_tokens: true,
  finished_at: true,
});

/** Converts a session from its wire form, its URLs included. */
function sessionOf(wire: WireSession): SessionInfo {
  return { ...fromWire(sessionFields, wire), urls: fromWire(sessionUrls, wire.urls) };
}

/** Converts the options of a session to the body of the request. */
function toBody({ samplingDefaults, samplingOverrides, ...fields }: CreateSessionOptions): object {
  const sampling = { sampling_defaults: samplingToWire(samplingDefaults), sampling_overrides: samplingToWire(samplingOverrides) };
  return { ...toWire(createSessionRequest, fields), ...sampling };
}

/** Converts the names to snake_case, also unknown ones, so that the service can reject them with an error. */
function samplingToWire(sampling: SessionSampling | undefined): object | undefined {
  if (sampling === undefined) return undefined;
  return Object.fromEntries(Object.entries(sampling).map(([name, value]) => [snakeCase(name), value]));
}

/** Creates the `sessions` resource of a connection. */
export function sessionsResource(api: Api): Sessions {
  const route = (id: string): string => `${PATH}/${encodeURIComponent(id)}`;
  const toSession = (answer: unknown): SessionInfo => sessionOf(parseResponse(session, answer, "session"));
  /** Requests a session. The response may take long: the service waits, or writes a long trajectory. */
  const fetchSession = async (id: string, query: Record<string, string | number>, options: CallOptions) => {
    const answer = await callJson(api, "GET", route(id), { ...options, query, headersTimeoutMs: LONG_CALL_MS });
    return parseResponse(sessionWithTrajectory, answer, "session");
  };
  const resource: Sessions = {
    async create({ signal, timeoutMs, ...fields }) {
      const answer = await callJson(api, "POST", PATH, { signal, timeoutMs, json: toBody(fields), retry: "idempotent" });
      const created = parseResponse(createdSession, answer, "session");
      return { ...sessionOf(created), key: created.key };
    },
    async list({ model, ...options } = {}) {
      return (await allPages(api, PATH, { schema: sessionList, query: { model }, itemsName: "sessions" }, options)).map(sessionOf);
    },
    get: async (id, { waitSeconds = 0, ...options } = {}) =>
      sessionOf(await fetchSession(id, { trajectory: "omit", wait: waitSeconds }, options)),
    async trajectory(id, options = {}) {
      const { trajectory } = await fetchSession(id, {}, options);
      // The service leaves it out only on request.
      return trajectory!;
    },
    async wait(id, { signal, timeoutMs } = {}) {
      const timeout = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
      const stop = AbortSignal.any([signal, timeout].filter((each) => each !== undefined));
      for (;;) {
        const current = await resource.get(id, { waitSeconds: WAIT_SECONDS, signal: stop });
        if (current.status !== "open") return current;
      }
    },
    async score(id, { reward, metrics }, options = {}) {
      let changed: SessionInfo | null = null;
      if (metrics !== undefined)
        changed = toSession(await callJson(api, "POST", `${route(id)}/metrics`, { ...options, json: { metrics }, retry: "idempotent" }));
      if (reward !== undefined)
        changed = toSession(await callJson(api, "POST", `${route(id)}/reward`, { ...options, json: { reward }, retry: "idempotent" }));
      return changed ?? resource.get(id, options);
    },
    finish: async (id, { reward, metrics } = {}, options = {}) =>
      toSession(await callJson(api, "POST", `${route(id)}/finish`, { ...options, json: { reward, metrics }, retry: "idempotent" })),
    async delete(id, options = {}) {
      parseResponse(deleteSessionResponse, await callJson(api, "DELETE", route(id), options), "answer to the deletion of a session");
    },
  };
  return resource;
}
