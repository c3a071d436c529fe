/** Sessions of the library, and their conversion from and to the wire's snake_case. Metadata and metrics keep their keys. */
import type { CreateSessionRequest, Session as WireSession, SessionSampling as WireSampling } from "../../base/schema/index.ts";
import type { CamelKeys } from "./wire.ts";

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
export interface SessionInfo {
  /** UUID that addresses the session in calls. */
  readonly id: string;
  /** API key of the session, only in the result of `create`; else null, because the service stores a hash of it. */
  readonly key: string | null;
  /** Base URLs for the agent. */
  readonly urls: SessionUrls;
  /** Model that every request samples. */
  readonly model: string;
  /** `open` while requests are accepted; `finished` after `finish`; `timed_out` after `maxSeconds` without it. */
  readonly status: "open" | "finished" | "timed_out";
  /** Reward of the rollout; null until it is set. */
  readonly reward: number | null;
  /** Measurements of the rollout by name. */
  readonly metrics: Readonly<Record<string, number | boolean>>;
  /** Labels of the trajectory by name. */
  readonly metadata: Readonly<Record<string, number | string | boolean | null>>;
  /** Number of sampled requests. */
  readonly requests: number;
  /** Number of sampled tokens. */
  readonly tokens: number;
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

/** Model, sampling fields and limits of a session. */
export interface CreateSessionFields {
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

export function sessionFromWire(session: WireSession): SessionInfo {
  const { id, key, urls, model, status, reward, metrics, metadata, requests, tokens } = session;
  const { openai, anthropic, openai_path: openaiPath, anthropic_path: anthropicPath, session: address } = urls;
  return {
    ...{ id, key, model, status, reward, metrics, metadata, requests, tokens },
    urls: { openai, anthropic, openaiPath, anthropicPath, session: address },
    createdAt: session.created_at,
    openUntil: session.open_until,
    expiresAt: session.expires_at,
  };
}

export function sessionToWire(fields: CreateSessionFields): CreateSessionRequest {
  return {
    model: fields.model,
    sampling_defaults: samplingToWire(fields.samplingDefaults),
    sampling_overrides: samplingToWire(fields.samplingOverrides),
    metadata: fields.metadata,
    max_requests: fields.maxRequests,
    max_tokens: fields.maxTokens,
    max_seconds: fields.maxSeconds,
    expires_in_seconds: fields.expiresInSeconds,
  };
}

function samplingToWire(sampling: SessionSampling | undefined): WireSampling | undefined {
  if (sampling === undefined) return undefined;
  const snake = (name: string): string => name.replaceAll(/[A-Z]/gu, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(sampling).map(([name, value]) => [snake(name), value])) as WireSampling;
}
