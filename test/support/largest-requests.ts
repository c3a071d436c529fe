/** Requests with one field at its largest allowed value each, made from the table of limits: a field without a sample is an error. */
import { randomUUID } from "node:crypto";
import type { FieldLimit } from "../../src/base/schema/chat-fields.ts";
import { REQUEST_LIMITS, TRAJECTORY_LIMITS, type RequestKind } from "../../src/service/http/request-limits.ts";

/** Request of the largest accepted size. */
export interface LargestRequest {
  /** Kind and field, such as `chat messages`. */
  readonly name: string;
  readonly method: "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly body: Uint8Array;
  /** Key of the request. @default the key of the service */
  readonly key?: string | undefined;
}

/** Objects that the requests refer to, which must exist. */
export interface Existing {
  readonly modelId: string;
  /** Address of a committed version with training data. */
  readonly dataUrl: string;
  /** Open session. */
  readonly sessionId: string;
  /** Key of another open session. */
  readonly sessionKey: string;
  /** Open rollout plan with a leased task. */
  readonly planId: string;
  readonly taskId: string;
  readonly leaseToken: string;
}

type Json = Record<string, any>;

const PHRASE = "the quick brown fox jumps over 13 lazy dogs, ";
/** Text of so many characters. */
const text = (length: number): string => PHRASE.repeat(Math.ceil(length / PHRASE.length)).slice(0, length);
/** Texts that are all different, of so many characters at most and together. */
function texts(count: number, { each = 16, total = Infinity }: { readonly each?: number; readonly total?: number } = {}): string[] {
  const length = Math.min(each, Math.floor(total / count));
  return Array.from({ length: count }, (_, index) => `${text(length)}${index}`.slice(-length));
}
const list = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, index) => make(index));
const record = <T>(count: number, make: (index: number) => T, keyLength = 0): Record<string, T> =>
  Object.fromEntries(list(count, (index) => [String(index).padStart(keyLength, "k"), make(index)]));

/** Returns an object of many small members with a JSON text of nearly so many characters. */
function members(characters: number): Json {
  const size = '"k00000":"some text",'.length;
  return record(Math.floor(characters / size) - 1, () => "some text", 6);
}

/** A schema of nearly so many characters: an object of many optional members of several types. */
function schema(characters: number): Json {
  const member = (index: number): Json => (index % 2 === 0 ? { type: "string" } : { type: "array", items: { type: "integer" } });
  const properties: Json = {};
  for (let [index, left] = [0, characters - 200]; left > 64; index++) {
    properties[`member${index}`] = member(index);
    left -= JSON.stringify(member(index)).length + 16;
  }
  return { type: "object", properties, additionalProperties: false };
}

const USER = { role: "user", content: "hello" };
const ASSISTANT = { role: "assistant", content: "hi" };
const tool = (index: number, more: Json = {}): Json => ({
  type: "function",
  function: { name: `f${index}`, parameters: { type: "object" }, ...more },
});
const call = (index: number, more: Json = {}): Json => ({
  id: `c${index}`,
  type: "function",
  function: { name: "f", arguments: "{}", ...more },
});
const withMessage = (message: Json): Json => ({ messages: [USER, { ...ASSISTANT, ...message }, USER] });

/** Fields of a chat body with one of them at its limit, by its path in the table. */
const CHAT: Readonly<Record<string, (limit: Required<FieldLimit>) => Json | Json[]>> = {
  messages: ({ items }) => ({ messages: list(items, (index) => (index % 2 === 0 ? USER : ASSISTANT)) }),
  "messages.*.role": ({ characters }) => withMessage({ role: text(characters) }),
  "messages.*.content": ({ characters, items }) => [
    { messages: [{ role: "user", content: text(characters) }] },
    { messages: [{ role: "user", content: text(characters) }], truncate_prompt_tokens: -1, max_tokens: 1 },
    { messages: [{ role: "user", content: "\u6f22".repeat(characters / 4) }], truncate_prompt_tokens: -1, max_tokens: 1 },
    { messages: [{ role: "user", content: "a".repeat(characters / 4) }], truncate_prompt_tokens: -1, max_tokens: 1 },
    { messages: [{ role: "user", content: list(items, (index) => ({ type: "text", text: `part ${index}` })) }] },
  ],
  "messages.*.name": ({ characters }) => withMessage({ name: text(characters) }),
  "messages.*.tool_calls": ({ items }) => withMessage({ tool_calls: list(items, (index) => call(index)) }),
  "messages.*.tool_calls.*.id": ({ characters }) => withMessage({ tool_calls: [{ ...call(0), id: text(characters) }] }),
  "messages.*.tool_calls.*.function.name": ({ characters }) => withMessage({ tool_calls: [call(0, { name: text(characters) })] }),
  "messages.*.tool_calls.*.function.arguments": ({ json }) => [
    withMessage({ tool_calls: [call(0, { arguments: members(json) })] }),
    withMessage({ tool_calls: [call(0, { arguments: JSON.stringify(members(json)) })] }),
  ],
  "messages.*.tool_call_id": ({ characters }) => withMessage({ role: "tool", tool_call_id: text(characters) }),
  "messages.*.reasoning": ({ characters }) => withMessage({ reasoning: text(characters) }),
  "messages.*.reasoning_content": ({ characters }) => withMessage({ reasoning_content: text(characters) }),
  "messages.*.tools": ({ items }) => withMessage({ role: "developer", tools: list(items, (index) => tool(index)) }),
  model: ({ characters }) => ({ model: text(characters) }),
  tools: ({ items }) => [
    { tools: list(items, (index) => tool(index)) },
    { tools: list(items, (index) => tool(index, { parameters: schema(600) })), tool_choice: "required" },
  ],
  "tools.*.function.name": ({ characters }) => ({ tools: [tool(0, { name: text(characters) })] }),
  "tools.*.function.description": ({ characters }) => ({ tools: [tool(0, { description: text(characters) })] }),
  "tools.*.function.parameters": ({ json }) => [
    { tools: [tool(0, { parameters: schema(json) })] },
    { tools: [tool(0, { parameters: schema(json) })], tool_choice: "required" },
  ],
  tool_choice: ({ json }) => ({ tools: [tool(0)], tool_choice: { type: "function", function: { name: "f0" }, more: text(json - 80) } }),
  user: ({ characters }) => ({ user: text(characters) }),
  documents: ({ items }) => ({ documents: list(items, () => ({ title: "a", text: text(4000) })) }),
  "documents.*": ({ items, each }) => ({ documents: [record(items, () => text(1000), each)] }),
  chat_template: ({ characters }) => {
    const [first, block] = ["{{ messages[0].content }}", "{% if true %}a{% endif %}"];
    return { chat_template: (first + block.repeat(Math.floor((characters - first.length) / block.length))).padEnd(characters, " ") };
  },
  chat_template_kwargs: ({ items, each }) => ({ chat_template_kwargs: record(items, () => text(600), each) }),
  cache_salt: ({ characters }) => ({ cache_salt: text(characters) }),
  logit_bias: ({ items }) => ({ logit_bias: record(items, () => -1), n: 128, temperature: 1 }),
  allowed_token_ids: ({ items }) => ({ allowed_token_ids: list(items, (index) => index % 500), n: 128, temperature: 1 }),
  bad_words: ({ items, each, total }) => [
    { bad_words: texts(items, { each, total }), n: 128, temperature: 1 },
    { bad_words: texts(total / each, { each }), n: 128, temperature: 1 },
  ],
  stop: ({ items, each, total, characters }) => [
    { stop: texts(items, { each, total }), n: 128, temperature: 1, max_tokens: 60 },
    { stop: texts(total / each, { each }), n: 128, temperature: 1, max_tokens: 60 },
    { stop: text(characters) },
  ],
  stop_token_ids: ({ items }) => ({ stop_token_ids: list(items, (index) => 1000 + index), n: 128, temperature: 1 }),
  request_id: ({ characters }) => ({ request_id: text(characters) }),
  response_format: ({ json }) => ({ response_format: { type: "json_schema", json_schema: { name: "a", schema: schema(json - 200) } } }),
  structured_outputs: ({ json }) => ({ structured_outputs: { json: schema(json / 2) } }),
  "structured_outputs.json": ({ json }) => [
    { structured_outputs: { json: schema(json) } },
    { structured_outputs: { json: JSON.stringify(schema(json)).slice(0, json) } },
    { structured_outputs: { json: doubling(40) } },
    { structured_outputs: { json: doubling(9) } },
  ],
  "structured_outputs.regex": ({ characters }) => [
    { structured_outputs: { regex: "abcdefgh".repeat(characters / 8) } },
    { structured_outputs: { regex: "[a-z\u00e9-\u00fc]".repeat(characters / 8) } },
    { structured_outputs: { regex: "a?".repeat(characters / 4) + "a".repeat(characters / 2) } },
    {
      structured_outputs: {
        regex: ["L", "N", "P", "S", "Z", "Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Sc", "Sm"].map((name) => `\\p{${name}}`).join(""),
      },
    },
    { structured_outputs: { regex: texts(characters / 8, { each: 7 }).join("|") } },
  ],
  "structured_outputs.choice": ({ items, each, total }) => [
    { structured_outputs: { choice: texts(items, { each, total }) } },
    { structured_outputs: { choice: texts(Math.floor(total / each), { each }) } },
  ],
  "structured_outputs.grammar": ({ characters }) => ({
    structured_outputs: {
      grammar: `root ::= ${list(Math.floor(characters / 16) - 2, (index) => `"x${String(index).padStart(5, "0")}" `).join(" | ")}`,
    },
  }),
  "structured_outputs.structural_tag": ({ characters }) => ({
    structured_outputs: {
      structural_tag: JSON.stringify({ type: "structural_tag", format: { type: "json_schema", json_schema: schema(characters - 200) } }),
    },
  }),
  "structured_outputs.whitespace_pattern": ({ characters }) => ({
    structured_outputs: { json: schema(4000), whitespace_pattern: "[ \\n]?".repeat(Math.floor(characters / 6)) },
  }),
  mm_processor_kwargs: ({ json }) => ({ mm_processor_kwargs: members(json) }),
  kv_transfer_params: ({ json }) => ({ kv_transfer_params: members(json) }),
  engine_xargs: ({ json }) => ({ engine_xargs: members(json) }),
  vllm_xargs: ({ json }) => ({ vllm_xargs: members(json) }),
  repetition_detection: () => ({
    repetition_detection: { max_pattern_size: 1000, min_pattern_size: 1, min_count: 2 },
    n: 128,
    temperature: 1,
    max_tokens: 60,
  }),
  stream_options: ({ json }) => ({ stream: true, stream_options: { include_usage: true, more: text(json - 60) } }),
};

/** Numbers of a chat body at their bounds together: as much to answer as a request may ask for. */
function manyAnswers(maxTokens: number): Readonly<Record<string, Json>> {
  const many = {
    n: 128,
    temperature: 1,
    logprobs: true,
    top_logprobs: 20,
    max_tokens: maxTokens,
    ignore_eos: true,
    return_token_ids: true,
  };
  return {
    "choices with log-probabilities": many,
    "choices with log-probabilities, streamed": {
      ...many,
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
    },
    "log-probabilities of the prompt": {
      messages: [{ role: "user", content: "copy this ".repeat(180) }],
      prompt_logprobs: 20,
      max_tokens: 1,
    },
    "beam search": { n: 10, use_beam_search: true, max_tokens: 20 },
  };
}

/** A small schema in which every level takes the one below twice. */
function doubling(levels: number): Json {
  const $defs: Json = { d0: { type: "object", properties: { a: { type: "string" } } } };
  for (let level = 1; level <= levels; level++)
    $defs[`d${level}`] = { allOf: [{ $ref: `#/$defs/d${level - 1}` }, { $ref: `#/$defs/d${level - 1}` }] };
  return { $defs, $ref: `#/$defs/d${levels}` };
}

/** A choice of `tokens` sampled tokens, with its log-probabilities. */
function choice(tokens: number): Json {
  return {
    index: 0,
    message: ASSISTANT,
    finish_reason: "stop",
    token_ids: list(tokens, (index) => index % 500),
    prompt_token_ids: [1, 2, 3],
    logprobs: { content: list(tokens, (index) => ({ token: "a", logprob: -1.25 - (index % 7) / 8, bytes: [97], top_logprobs: [] })) },
  };
}
const trajectory = (reward: number, more: Json = {}): Json => ({ messages_and_choices: [USER, choice(4)], reward, ...more });
const group = (more: Json = {}): Json => ({ trajectories: [trajectory(0), trajectory(1)], ...more });

/** Lists of a history, by name. */
const HISTORY: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  messages: ({ items }) => ({ messages: list(items, (index) => (index % 2 === 0 ? USER : ASSISTANT)) }),
  messages_and_choices: ({ items }) => ({ messages_and_choices: list(items, (index) => (index % 2 === 0 ? USER : choice(2))) }),
  tools: ({ items }) => ({ tools: list(items, (index) => tool(index)) }),
};

/** Parts of a trajectory with one of its lists at its limit. */
const TRAJECTORY: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  ...HISTORY,
  additional_histories: ({ items }) => ({ additional_histories: list(items, () => ({ messages_and_choices: [USER, choice(4)] })) }),
  ...Object.fromEntries(
    Object.entries(HISTORY).map(([name, make]) => [
      `additional_histories.*.${name}`,
      (limit: Required<FieldLimit>) => ({ additional_histories: [{ messages_and_choices: [USER, choice(4)], ...make(limit) }] }),
    ]),
  ),
  metrics: ({ items, each }) => ({ metrics: record(items, (index) => index, each) }),
  metadata: ({ items, each }) => ({ metadata: record(items, () => text(200), each) }),
  logs: ({ items }) => ({ logs: texts(items, { each: 200 }) }),
};

const RL: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  trajectory_groups: ({ items }) => ({ trajectory_groups: list(items, () => group()) }),
  "trajectory_groups.*.trajectories": ({ items }) => ({
    trajectory_groups: [{ trajectories: list(items, (index) => trajectory(index % 2)) }],
  }),
  ...Object.fromEntries(
    Object.entries(TRAJECTORY).map(([name, make]) => [
      `trajectory_groups.*.trajectories.*.${name}`,
      (limit: Required<FieldLimit>) => ({ trajectory_groups: [{ trajectories: [trajectory(0), trajectory(1, make(limit))] }] }),
    ]),
  ),
  "trajectory_groups.*.exceptions": ({ items }) => ({
    trajectory_groups: [group({ exceptions: list(items, () => ({ type: "Error", message: text(200) })) })],
  }),
  "trajectory_groups.*.metrics": ({ items, each }) => ({ trajectory_groups: [group({ metrics: record(items, (index) => index, each) })] }),
  "trajectory_groups.*.metadata": ({ items, each }) => ({ trajectory_groups: [group({ metadata: record(items, () => text(200), each) })] }),
  "trajectory_groups.*.logs": ({ items }) => ({ trajectory_groups: [group({ logs: texts(items, { each: 200 }) })] }),
  experimental_config: ({ json }) => ({ trajectory_groups: [group()], experimental_config: members(json) }),
};

/** Members of the smaller bodies, by field. */
const MODEL: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  entity: ({ characters }) => ({ entity: "e".repeat(characters) }),
  project: ({ characters }) => ({ project: "p".repeat(characters) }),
  name: ({ characters }) => ({ name: "n".repeat(characters) }),
  base_model: ({ characters }) => ({ base_model: text(characters) }),
  from: ({ characters }) => ({ from: text(characters) }),
  lora: ({ json }) => ({ lora: { rank: 4, more: text(json - 40) } }),
};
const ARTIFACT: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  ...{ entity: MODEL["entity"]!, project: MODEL["project"]!, name: MODEL["name"]! },
  metadata: ({ json, items }) => ({ metadata: record(items, () => text(Math.floor(json / items) - 12)) }),
};
const SFT: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  training_data_url: ({ characters }) => ({ training_data_url: `artifact:///${text(characters - 12)}` }),
  "config.learning_rate": ({ items }) => ({ config: { learning_rate: list(items, () => 1e-5) } }),
  "config.metric_logging": ({ json }) => ({ config: { metric_logging: { enabled: false, more: text(json - 40) } } }),
  "experimental_config.validation_data_url": ({ characters }) => ({ experimental_config: { validation_data_url: text(characters) } }),
};

const PREFERENCE: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  training_data_url: ({ characters }) => ({ training_data_url: `artifact:///${text(characters - 12)}` }),
  "config.learning_rate": ({ items }) => ({ config: { learning_rate: list(items, () => 1e-5) } }),
  "config.validation_data_url": ({ characters }) => ({ config: { validation_data_url: text(characters) } }),
};

const SESSION: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  model: ({ characters }) => ({ model: text(characters) }),
  ...Object.fromEntries(
    ["sampling_defaults", "sampling_overrides"].flatMap((name) => [
      [
        `${name}.stop`,
        ({ items, each, total }: Required<FieldLimit>) => ({
          [name]: { stop: texts(items, { each: Math.min(each, Math.floor(total / items)) }) },
        }),
      ],
      [`${name}.stop_token_ids`, ({ items }: Required<FieldLimit>) => ({ [name]: { stop_token_ids: list(items, (index) => index) } })],
      [`${name}.chat_template_kwargs`, (limit: Required<FieldLimit>) => ({ [name]: CHAT["chat_template_kwargs"]!(limit) })],
    ]),
  ),
  metadata: ({ json, items }) => ({ metadata: record(items, () => text(Math.floor(json / items) - 12)) }),
};
const METRICS = { metrics: ({ items, each }: Required<FieldLimit>): Json => ({ metrics: record(items, (index) => index, each) }) };

const BASE_MODEL = {
  source: ({ characters }: Required<FieldLimit>): Json => ({ source: `/${text(characters - 1)}` }),
  id: ({ characters }: Required<FieldLimit>): Json => ({ id: text(characters) }),
};

const FINE_TUNING: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  model: ({ characters }) => ({ model: text(characters) }),
  training_file: ({ characters }) => ({ training_file: text(characters) }),
  validation_file: ({ characters }) => ({ validation_file: text(characters) }),
  suffix: ({ characters }) => ({ suffix: "s".repeat(characters) }),
  metadata: ({ items, each }) => ({ metadata: record(items, () => text(500), each) }),
  "metadata.*": ({ characters }) => ({ metadata: { key: text(characters) } }),
  integrations: ({ items }) => ({ integrations: list(items, () => ({ type: "wandb" })) }),
  method: ({ json }) => ({ method: { type: "reinforcement", reinforcement: { grader: { type: "multi", more: text(json - 100) } } } }),
};

const GRADER = {
  type: "text_similarity",
  name: "close",
  evaluation_metric: "meteor",
  input: "{{ sample.output_text }}",
  reference: "{{ item.answer }}",
};
const GRADER_CHECK = {
  grader: ({ json }: Required<FieldLimit>): Json => ({ grader: { ...GRADER, reference: text(json - 200) } }),
};
const GRADER_RUN = {
  model_sample: ({ characters }: Required<FieldLimit>): Json[] => [
    { model_sample: text(characters), item: { answer: text(4000) } },
    { grader: { ...GRADER, evaluation_metric: "rouge_l" }, model_sample: text(characters), item: { answer: text(4000) } },
  ],
  item: ({ json }: Required<FieldLimit>): Json[] => [{ item: members(json) }, { item: { answer: text(json - 20) } }],
};

const HASH = "0".repeat(64);
const ROLLOUT_PLAN: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  environment: ({ characters }) => ({ environment: "e".repeat(characters) }),
  policy: ({ characters }) => ({ policy: text(characters) }),
  chat_template_kwargs: ({ json }) => ({ chat_template_kwargs: members(json) }),
  metadata: ({ json, items }) => ({ metadata: record(items, () => text(Math.floor(json / items) - 12)) }),
};
const ROLLOUT_GROUPS: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  groups: ({ items }) => ({ groups: list(items, (index) => ({ group: 1000 + index, scenario: { text: text(1000) } })) }),
  "groups.*.scenario": ({ json }) => ({ groups: [{ group: 1, scenario: members(json) }] }),
};
const ROLLOUT_LEASE: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  worker: ({ characters }) => ({ worker: "w".repeat(characters) }),
  environments: ({ items }) => ({ environments: list(items, (index) => ({ name: `largest-${index}`, hash: HASH })) }),
  "environments.*.name": ({ characters }) => ({ environments: [{ name: "n".repeat(characters), hash: HASH }] }),
};
const LEASES = {
  leases: ({ items }: Required<FieldLimit>): Json => ({ leases: list(items, () => ({ id: randomUUID(), lease_token: randomUUID() })) }),
};
const ROLLOUT_OUTCOME: Readonly<Record<string, (limit: Required<FieldLimit>) => Json>> = {
  ...Object.fromEntries(
    Object.entries(TRAJECTORY).map(([name, make]) => [
      `trajectory.${name}`,
      (limit: Required<FieldLimit>) => ({ trajectory: trajectory(1, make(limit)) }),
    ]),
  ),
  replaced: ({ items }) => ({
    exception: { type: "Error", message: "no" },
    replaced: list(items, () => ({ type: "Error", message: text(200) })),
  }),
};

const SAMPLES = {
  chat: CHAT,
  model: MODEL,
  baseModel: BASE_MODEL,
  artifact: ARTIFACT,
  sft: SFT,
  preference: PREFERENCE,
  rl: RL,
  fineTuning: FINE_TUNING,
  graderRun: { ...GRADER_CHECK, ...GRADER_RUN },
  graderCheck: GRADER_CHECK,
  checkpoints: { steps: ({ items }: Required<FieldLimit>): Json => ({ steps: list(items, (index) => 1_000_000 + index) }) },
  session: SESSION,
  sessionReward: {},
  sessionMetrics: METRICS,
  key: {},
  keyRotation: {},
  keyLimits: {},
  entityLimits: {},
  drainUpstream: { url: ({ characters }) => ({ url: "u".repeat(characters) }) },
  sessionFinish: METRICS,
  rolloutPlan: ROLLOUT_PLAN,
  rolloutGroups: ROLLOUT_GROUPS,
  rolloutLease: ROLLOUT_LEASE,
  rolloutHeartbeat: LEASES,
  rolloutRelease: LEASES,
  rolloutOutcome: ROLLOUT_OUTCOME,
} as const satisfies Readonly<Record<RequestKind, Readonly<Record<string, (limit: Required<FieldLimit>) => Json | Json[]>>>>;

/** Fields that have a limit and no sample, or a sample and no limit. */
export function unmatchedFields(): string[] {
  return (Object.keys(REQUEST_LIMITS) as RequestKind[]).flatMap((kind) => {
    const [limits, samples] = [Object.keys(REQUEST_LIMITS[kind].fields), Object.keys(SAMPLES[kind])];
    const unmatched = [...limits.filter((path) => !samples.includes(path)), ...samples.filter((path) => !limits.includes(path))];
    return unmatched.map((path) => `${kind} ${path}`);
  });
}

function bodyOf(kind: RequestKind, fields: Json, { modelId, dataUrl }: Existing, number: number): Json {
  switch (kind) {
    case "chat":
      return { messages: [USER], max_tokens: 4, ...fields };
    case "model":
      return { project: "largest", name: `model-${number}`, base_model: "whetstone-tiny", ...fields };
    case "baseModel":
      return { source: "/nonexistent", ...fields };
    case "artifact":
      return { project: "largest", name: `artifact-${number}`, ...fields };
    case "sft":
    case "preference":
      return { model_id: modelId, training_data_url: dataUrl, ...fields };
    case "rl":
      return { model_id: modelId, ...fields };
    case "fineTuning":
      return { model: "whetstone-tiny", training_file: "file-1", ...fields };
    case "graderRun":
      return { grader: GRADER, model_sample: "hello", ...fields };
    case "graderCheck":
      return fields;
    case "session":
      return { model: "whetstone-tiny", ...fields };
    case "key":
      return { name: "largest", ...fields };
    case "sessionReward":
      return { reward: 1, ...fields };
    case "checkpoints":
    case "keyRotation":
    case "keyLimits":
    case "entityLimits":
    case "drainUpstream":
    case "sessionMetrics":
    case "sessionFinish":
    case "rolloutGroups":
    case "rolloutHeartbeat":
    case "rolloutRelease":
    case "rolloutOutcome":
      return fields;
    case "rolloutPlan":
      return { environment: "largest", environment_hash: HASH, policy: "whetstone-tiny", group_size: 1, seed: 0, ...fields };
    case "rolloutLease":
      return { worker: "largest", environments: [{ name: "largest", hash: HASH }], ...fields };
  }
}

const encoder = new TextEncoder();

/**
 * Requests of a session with bodies of the maximum size: long texts, and as many values as are allowed. All are refused after they are read,
 * because their prompts are longer than the context.
 */
export function* largestOfSession({ sessionKey: key }: Pick<Existing, "sessionKey">): Generator<LargestRequest> {
  const { bytes, values } = REQUEST_LIMITS.chat.body;
  const content = text(Math.floor(bytes / 4) - 1000);
  const bodies = {
    "long texts": { messages: list(4, () => ({ role: "user", content })) },
    values: { messages: [USER], unknown: list(values - 100, () => 12345678901234) },
    messages: { messages: list(4000, (index) => ({ role: "user", content: text(1500), name: `n${index}` })) },
  };
  for (const [name, body] of Object.entries(bodies))
    yield { name: `session body: ${name}`, method: "POST", path: "/v1/chat/completions", body: encoder.encode(JSON.stringify(body)), key };
}

/**
 * Every field of every route at its largest value, and bodies at the bounds of their kind.
 *
 * @param withVariants - Whether to send further values of the same size for some fields, several of which take seconds.
 */
export function* largestRequests(existing: Existing, { withVariants }: { readonly withVariants: boolean }): Generator<LargestRequest> {
  const routes = {
    chat: ["POST", "/v1/chat/completions"],
    model: ["POST", "/v1/preview/models"],
    baseModel: ["POST", "/v1/preview/base-models"],
    checkpoints: ["DELETE", `/v1/preview/models/${existing.modelId}/checkpoints`],
    artifact: ["POST", "/v1/preview/artifacts"],
    sft: ["POST", "/v1/preview/sft-training-jobs"],
    preference: ["POST", "/v1/preview/preference-training-jobs"],
    rl: ["POST", "/v1/preview/training-jobs"],
    fineTuning: ["POST", "/v1/fine_tuning/jobs"],
    graderRun: ["POST", "/v1/fine_tuning/alpha/graders/run"],
    graderCheck: ["POST", "/v1/fine_tuning/alpha/graders/validate"],
    session: ["POST", "/v1/preview/sessions"],
    sessionReward: ["POST", `/v1/preview/sessions/${existing.sessionId}/reward`],
    sessionMetrics: ["POST", `/v1/preview/sessions/${existing.sessionId}/metrics`],
    key: ["POST", "/v1/preview/keys"],
    keyRotation: ["POST", `/v1/preview/keys/${existing.sessionId}/rotate`],
    keyLimits: ["PUT", `/v1/preview/keys/${existing.sessionId}/limits`],
    drainUpstream: ["PUT", "/v1/preview/upstreams"],
    entityLimits: ["PUT", "/v1/preview/entities/local/limits"],
    sessionFinish: ["POST", `/v1/preview/sessions/${existing.sessionId}/finish`],
    rolloutPlan: ["POST", "/v1/preview/rollout-plans"],
    rolloutGroups: ["POST", `/v1/preview/rollout-plans/${existing.planId}/groups`],
    rolloutLease: ["POST", "/v1/preview/rollout-tasks/lease"],
    rolloutHeartbeat: ["POST", "/v1/preview/rollout-tasks/heartbeat"],
    rolloutRelease: ["POST", "/v1/preview/rollout-tasks/release"],
    rolloutOutcome: ["PUT", `/v1/preview/rollout-tasks/${existing.taskId}/outcome?lease_token=${existing.leaseToken}`],
  } as const satisfies Readonly<Record<RequestKind, readonly ["POST" | "PUT" | "DELETE", string]>>;
  let number = 0;
  for (const kind of Object.keys(SAMPLES) as RequestKind[]) {
    const [method, path] = routes[kind];
    const { body, fields } = REQUEST_LIMITS[kind];
    for (const [field, sample] of Object.entries(SAMPLES[kind] as typeof CHAT)) {
      const made = sample((fields as Record<string, FieldLimit>)[field] as Required<FieldLimit>);
      for (const [index, each] of (Array.isArray(made) ? made : [made]).slice(0, withVariants ? undefined : 1).entries()) {
        const json = JSON.stringify(bodyOf(kind, each, existing, number++));
        yield { name: `${kind} ${field}${index > 0 ? ` (${index + 1})` : ""}`, method, path, body: encoder.encode(json) };
      }
    }
    if (kind === "chat") {
      for (const [name, more] of Object.entries(manyAnswers(withVariants ? 900 : 40))) {
        const json = JSON.stringify(bodyOf(kind, more, existing, number++));
        yield { name: `chat: ${name}`, method, path, body: encoder.encode(json) };
      }
    }
    const deep = `${"[".repeat(body.depth - 2)}${"]".repeat(body.depth - 2)}`;
    yield { name: `${kind}: nesting`, method, path, body: encoder.encode(`{"unknown":[${deep}]}`) };
    if (body.values !== Infinity) {
      const many = `{"unknown":[${"0,".repeat(body.values - 10)}0]}`;
      yield { name: `${kind}: values`, method, path, body: encoder.encode(many) };
      const keys = list(Math.min(body.values, Math.floor(body.bytes / 14)) - 10, (index) => `"u${index}":0`).join(",");
      yield { name: `${kind}: unknown fields`, method, path, body: encoder.encode(`{${keys}}`) };
    }
  }
}

/** The body of an RL job of nearly so many bytes. */
export function rlBodyOf(bytes: number, { modelId }: Existing): Uint8Array {
  const one = JSON.stringify(trajectory(0, { messages_and_choices: [USER, choice(500)] }));
  const trajectories = Array.from({ length: Math.floor(bytes / (one.length + 1)) - 1 }, (_, index) =>
    one.replace('"reward":0', `"reward":${index % 2}`),
  );
  const groups: string[] = [];
  for (let at = 0; at < trajectories.length; at += 16) groups.push(`{"trajectories":[${trajectories.slice(at, at + 16).join(",")}]}`);
  return encoder.encode(`{"model_id":"${modelId}","trajectory_groups":[${groups.join(",")}]}`);
}

/** Lines of training data with one list at its limit each. */
export function largestLines(): string {
  const lines = Object.entries(TRAJECTORY).map(([path, make]) => {
    const part = make((TRAJECTORY_LIMITS as Record<string, FieldLimit>)[path] as Required<FieldLimit>);
    if (path !== "messages") return { ...trajectory(1), ...part };
    // One answer at the end: each answer is rendered with all messages before it.
    return { messages: [...(part["messages"] as Json[]).slice(0, -1).map(() => USER), ASSISTANT] };
  });
  return lines.map((line) => JSON.stringify(line)).join("\n");
}
