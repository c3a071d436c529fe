/** Schemas of sessions. "Extension" marks routes and fields that this service adds to the interface that it implements. */

import { z } from "zod";
import { chatCompletionRequest } from "./chat-fields.ts";
import { listOf, newestFirstQuery, uuid } from "./common.ts";
import { trajectory } from "./trajectory.ts";

/** Schemas of the fields of chat completions, which session settings reuse. */
const { shape } = chatCompletionRequest;

/** Schema of {@link SessionSampling}. */
export const sessionSampling = z.strictObject({
  /** Divisor of the logits; 0 = greedy. */
  temperature: shape.temperature,
  /** Probability mass of the most probable tokens to sample from. */
  top_p: shape.top_p,
  /** Number of most probable tokens to sample from; 0 or -1 = all. */
  top_k: shape.top_k,
  /** Min probability of a sampled token relative to the most probable token. */
  min_p: shape.min_p,
  /** Penalty on tokens that occurred in prompt or output; 1 = none. */
  repetition_penalty: shape.repetition_penalty,
  /** Penalty per occurrence of a token in the output; 0 = none. */
  frequency_penalty: shape.frequency_penalty,
  /** Penalty on tokens that occurred in the output; 0 = none. */
  presence_penalty: shape.presence_penalty,
  /** Max output tokens of a request. Replaces `max_tokens` of the client, too. */
  max_completion_tokens: shape.max_completion_tokens,
  /** Min output tokens of a request. */
  min_tokens: shape.min_tokens,
  /** Seed of each request. */
  seed: z.int().nullish(),
  /** Text or texts that end the output. */
  stop: shape.stop,
  /** Tokens that end the output. */
  stop_token_ids: shape.stop_token_ids,
  /** Whether sampling continues after the end token. */
  ignore_eos: shape.ignore_eos,
  /** Variables of the chat template; merged by name with the variables of the request. */
  chat_template_kwargs: shape.chat_template_kwargs,
  /** Reasoning effort, a variable of the chat template. */
  reasoning_effort: shape.reasoning_effort,
});
/** Sampling fields of chat completions that a session sets. @interface */
export type SessionSampling = z.infer<typeof sessionSampling>;

/** Schema of measurements by name. */
const metrics = z.record(z.string(), z.union([z.number(), z.boolean()]));

/** Schema of {@link CreateSessionRequest}. */
export const createSessionRequest = z.strictObject({
  /**
   * Model that every request of the session samples, instead of the model that it names: `entity/project/name`, with or without a step, or
   * a base model.
   */
  model: z.string().min(1),
  /** Fields of requests that do not set them. @default {} */
  sampling_defaults: sessionSampling.nullish(),
  /** Fields of all requests, instead of the values that requests set. @default {} */
  sampling_overrides: sessionSampling.nullish(),
  /** Labels of the trajectory by name. @default {} */
  metadata: z.record(z.string(), z.union([z.number(), z.string(), z.boolean(), z.null()])).nullish(),
  /** Max sampled requests. @default 1000 */
  max_requests: z.int().min(1).max(100_000).nullish(),
  /** Max sampled tokens of all requests. @default no limit */
  max_tokens: z.int().min(1).nullish(),
  /** Seconds after the creation in which requests are accepted; running requests are cancelled at the end. @default 3600 */
  max_seconds: z.number().min(0.001).max(604_800).nullish(),
  /** Seconds after the creation at which the session is deleted, with its trajectory. @default 86400 */
  expires_in_seconds: z.number().min(1).max(31_536_000).nullish(),
});
/** Body of `POST /v1/preview/sessions`. Extension. @interface */
export type CreateSessionRequest = z.infer<typeof createSessionRequest>;

/** Schema of {@link SessionRewardRequest}. */
export const sessionRewardRequest = z.strictObject({
  /** Reward of the rollout; replaces an earlier one. */
  reward: z.number(),
});
/** Body of `POST /v1/preview/sessions/{session_id}/reward`. Extension. @interface */
export type SessionRewardRequest = z.infer<typeof sessionRewardRequest>;

/** Schema of {@link SessionMetricsRequest}. */
export const sessionMetricsRequest = z.strictObject({
  /** Measurements of the rollout by name; replace earlier ones of the same name. */
  metrics,
});
/** Body of `POST /v1/preview/sessions/{session_id}/metrics`. Extension. @interface */
export type SessionMetricsRequest = z.infer<typeof sessionMetricsRequest>;

/** Schema of {@link FinishSessionRequest}. */
export const finishSessionRequest = z.strictObject({
  /** Reward of the rollout. @default the reward set before */
  reward: z.number().nullish(),
  /** Measurements of the rollout by name, added to earlier ones. @default none */
  metrics: metrics.nullish(),
});
/** Body of `POST /v1/preview/sessions/{session_id}/finish`. Extension. @interface */
export type FinishSessionRequest = z.infer<typeof finishSessionRequest>;

/** Schema of {@link SessionUrls}. */
export const sessionUrls = z.object({
  /** Base URL of OpenAI clients, which send the session key as the API key. */
  openai: z.string(),
  /** Base URL of Anthropic clients, which send the session key as the API key. */
  anthropic: z.string(),
  /** Base URL of OpenAI clients that send any other API key: the path holds the session key; without `key`, the session id. */
  openai_path: z.string(),
  /** Base URL of Anthropic clients that send any other API key: the path holds the session key; without `key`, the session id. */
  anthropic_path: z.string(),
  /** URL of the session; `/reward`, `/metrics` and `/finish` below it accept the session key. */
  session: z.string(),
});
/** Base URLs of a session. @interface */
export type SessionUrls = z.infer<typeof sessionUrls>;

/** Schema of {@link Session}. */
export const session = z.object({
  /** UUID that addresses the session in its routes. */
  id: uuid,
  /** API key of the session, only in the answer to its creation; else null, because the service stores a hash of it. */
  key: z.string().nullable(),
  /** Base URLs, with the origin to which the request was sent. */
  urls: sessionUrls,
  /** Model that every request samples. */
  model: z.string(),
  /** `open` while requests are accepted; `finished` after `POST …/finish`; `timed_out` after `max_seconds` without it. */
  status: z.literal(["open", "finished", "timed_out"]),
  /** Reward of the rollout; null until it is set. */
  reward: z.number().nullable(),
  /** Measurements of the rollout by name. */
  metrics,
  /** Labels of the trajectory by name. */
  metadata: z.record(z.string(), z.union([z.number(), z.string(), z.boolean(), z.null()])),
  /** Fields of requests that do not set them. */
  sampling_defaults: sessionSampling,
  /** Fields of all requests, instead of the values that requests set. */
  sampling_overrides: sessionSampling,
  /** Max sampled requests. */
  max_requests: z.int(),
  /** Max sampled tokens; null = no limit. */
  max_tokens: z.int().nullable(),
  /** Number of sampled requests. */
  requests: z.int(),
  /** Number of sampled tokens. */
  tokens: z.int(),
  /** Creation time, ISO 8601. */
  created_at: z.string(),
  /** Time until which requests are accepted, ISO 8601. */
  open_until: z.string(),
  /** Time at which the session is deleted, ISO 8601. */
  expires_at: z.string(),
  /** Time of `POST …/finish`, ISO 8601; null without it. */
  finished_at: z.string().nullable(),
});
/** A session: a key with which an agent of any kind samples one policy, and the record of its requests. @interface */
export type Session = z.infer<typeof session>;

/** Schema of {@link CreatedSession}. */
export const createdSession = session.extend({
  /** API key of the session. No other answer has it. */
  key: z.string(),
});
/** Answer of `POST /v1/preview/sessions`. Extension. @interface */
export type CreatedSession = z.infer<typeof createdSession>;

/** Schema of {@link SessionWithTrajectory}. */
export const sessionWithTrajectory = session.extend({
  /**
   * Trajectory of all requests so far, with token ids and log-probabilities; reward 0 until a reward is set. Null with `trajectory=omit`.
   */
  trajectory: trajectory.nullable(),
});
/** Answer of `GET /v1/preview/sessions/{session_id}`. Extension. @interface */
export type SessionWithTrajectory = z.infer<typeof sessionWithTrajectory>;

/** Schema of {@link SessionReadQuery}. */
export const sessionReadQuery = z.strictObject({
  /** Whether the answer has the trajectory. @default "include" */
  trajectory: z.literal(["include", "omit"]).default("include"),
  /** Max seconds to wait until the session is no longer open, 0 to 30. @default 0 */
  wait: z.coerce.number().min(0).max(30).default(0),
});
/** Query parameters of `GET /v1/preview/sessions/{session_id}`. Extension. @interface */
export type SessionReadQuery = z.infer<typeof sessionReadQuery>;

/** Schema of {@link SessionQuery}. */
export const sessionQuery = newestFirstQuery.extend({
  /** Only sessions of this model, as named at the creation. */
  model: z.string().optional(),
});
/** Query parameters of `GET /v1/preview/sessions`. Extension. @interface */
export type SessionQuery = z.infer<typeof sessionQuery>;

/** Schema of {@link SessionList}. */
export const sessionList = listOf(session);
/** Answer of `GET /v1/preview/sessions`: a page of sessions, newest first. Extension. @interface */
export type SessionList = z.infer<typeof sessionList>;

/** Schema of {@link DeleteSessionResponse}. */
export const deleteSessionResponse = z.object({
  /** UUID of the deleted session. */
  session_id: uuid,
  /** Number of recorded requests that were deleted with it. */
  deleted_turns: z.int().min(0),
});
/** Answer of `DELETE /v1/preview/sessions/{session_id}`. Extension. @interface */
export type DeleteSessionResponse = z.infer<typeof deleteSessionResponse>;
