/**
 * Limits of every body, list and string of a request; `CHAT_FIELDS` has the limits of chat fields. `docs/reference/limits.md` has the same
 * tables; one test compares them, and another sends each field at its limit.
 */
import { ArgumentError } from "../../base/errors.ts";
import { FIELD_ROWS, type FieldLimit, type FieldLimits } from "../../base/schema/chat-fields.ts";
import { MAX_JSON_DEPTH, type JsonLimit } from "../../base/util/json-size.ts";
import { getOrInsert } from "../../base/util/values.ts";

/** Limits of a whole JSON body, checked on its bytes before parsing. */
export interface BodyLimit extends JsonLimit {
  /** Max bytes of the body; the lower of this and the service's `maxBodyBytes` applies. */
  readonly bytes: number;
}

/** Limits of one kind of request. */
export interface RequestLimit {
  readonly body: BodyLimit;
  readonly fields: FieldLimits;
}

const KIB = 1024;
const MIB = 1024 * KIB;

const SMALL_BODY: BodyLimit = { bytes: 4 * MIB, depth: MAX_JSON_DEPTH, values: 200_000, stringBytes: 64 * KIB };
/** Limit of a body with a grader: the sample and the texts of an item may be long. */
const GRADER_BODY: BodyLimit = { ...SMALL_BODY, stringBytes: 256 * KIB };
/** Limit of a grader. */
const GRADER: FieldLimit = { json: 64 * KIB };
/** Max characters of a name. */
const NAME = 128;
/** Max characters of a reference to another object: its URL, path or qualified name. */
const REFERENCE = 1024;

/** Returns `limits` with `prefix` added to each path. */
function under(prefix: string, limits: FieldLimits): FieldLimits {
  return Object.fromEntries(Object.entries(limits).map(([path, limit]) => [`${prefix}.${path}`, limit]));
}

/** Limits of the lists in one history of a trajectory, or in a line of training data. */
const HISTORY: FieldLimits = {
  messages: { items: 4096 },
  messages_and_choices: { items: 4096 },
  tools: { items: 1024 },
};

/** Limits of the lists in a trajectory, which is also the format of a line of training data. */
export const TRAJECTORY_LIMITS: FieldLimits = {
  ...HISTORY,
  additional_histories: { items: 256 },
  ...under("additional_histories.*", HISTORY),
  metrics: { items: 1024, each: 256 },
  metadata: { items: 1024, each: 256 },
  logs: { items: 4096 },
};

/** Limits of the lists in a line with a preference pair. */
export const PREFERENCE_LIMITS: FieldLimits = {
  "input.messages": { items: 4096 },
  "input.tools": { items: 1024 },
  preferred_output: { items: 4096 },
  non_preferred_output: { items: 4096 },
  prompt: { items: 4096 },
  chosen: { items: 4096 },
  rejected: { items: 4096 },
  tools: { items: 1024 },
};

/** Returns the limits of the chat fields, also under their other names. */
function chatLimits(): FieldLimits {
  const limits = FIELD_ROWS.flatMap(([name, { limit = {}, parts = {}, alias = name }]) => {
    const entries = Object.entries({ [name]: limit, ...under(name, parts), [alias]: limit });
    return entries.filter(([, each]) => Object.keys(each).length > 0);
  });
  return Object.fromEntries(limits);
}

/** Limits of the fields that a session sets in its requests. */
const SAMPLING: FieldLimits = Object.fromEntries(
  Object.entries(chatLimits()).filter(([path]) => ["stop", "stop_token_ids", "chat_template_kwargs"].includes(path)),
);

/** Limits by kind of request. In the path of a field, `*` stands for each item of a list. */
export const REQUEST_LIMITS = {
  chat: {
    body: { bytes: 8 * MIB, depth: MAX_JSON_DEPTH, values: 400_000, stringBytes: 4 * MIB },
    fields: chatLimits(),
  },
  model: {
    body: SMALL_BODY,
    fields: {
      entity: { characters: NAME },
      project: { characters: NAME },
      name: { characters: NAME },
      base_model: { characters: REFERENCE },
      from: { characters: REFERENCE },
      lora: { json: 1024 },
    },
  },
  baseModel: { body: SMALL_BODY, fields: { source: { characters: REFERENCE }, id: { characters: REFERENCE } } },
  checkpoints: { body: SMALL_BODY, fields: { steps: { items: 10_000 } } },
  artifact: {
    body: SMALL_BODY,
    fields: {
      entity: { characters: NAME },
      project: { characters: NAME },
      name: { characters: NAME },
      metadata: { items: 1024, each: 256, json: 64 * KIB },
    },
  },
  sft: {
    body: SMALL_BODY,
    fields: {
      training_data_url: { characters: REFERENCE },
      "config.learning_rate": { items: 100_000 },
      "config.metric_logging": { json: 1024 },
      "experimental_config.validation_data_url": { characters: REFERENCE },
    },
  },
  preference: {
    body: SMALL_BODY,
    fields: {
      training_data_url: { characters: REFERENCE },
      "config.learning_rate": { items: 100_000 },
      "config.validation_data_url": { characters: REFERENCE },
    },
  },
  rl: {
    body: { bytes: Infinity, depth: MAX_JSON_DEPTH, values: Infinity, stringBytes: 4 * MIB },
    fields: {
      trajectory_groups: { items: 4096 },
      "trajectory_groups.*.trajectories": { items: 4096 },
      ...under("trajectory_groups.*.trajectories.*", TRAJECTORY_LIMITS),
      "trajectory_groups.*.exceptions": { items: 4096 },
      "trajectory_groups.*.metrics": { items: 1024, each: 256 },
      "trajectory_groups.*.metadata": { items: 1024, each: 256 },
      "trajectory_groups.*.logs": { items: 4096 },
      experimental_config: { json: 64 * KIB },
    },
  },
  fineTuning: {
    body: SMALL_BODY,
    fields: {
      model: { characters: REFERENCE },
      training_file: { characters: NAME },
      validation_file: { characters: NAME },
      suffix: { characters: 64 },
      metadata: { items: 16, each: 64 },
      "metadata.*": { characters: 512 },
      integrations: { items: 5 },
      method: { json: 64 * KIB },
    },
  },
  graderRun: {
    body: GRADER_BODY,
    fields: { grader: GRADER, model_sample: { characters: 64 * KIB }, item: { json: 256 * KIB } },
  },
  graderCheck: { body: GRADER_BODY, fields: { grader: GRADER } },
  session: {
    body: SMALL_BODY,
    fields: {
      model: { characters: REFERENCE },
      ...under("sampling_defaults", SAMPLING),
      ...under("sampling_overrides", SAMPLING),
      metadata: { items: 1024, each: 256, json: 64 * KIB },
    },
  },
  sessionReward: { body: SMALL_BODY, fields: {} },
  sessionMetrics: { body: SMALL_BODY, fields: { metrics: { items: 1024, each: 256 } } },
  key: { body: SMALL_BODY, fields: {} },
  keyRotation: { body: SMALL_BODY, fields: {} },
  keyLimits: { body: SMALL_BODY, fields: {} },
  entityLimits: { body: SMALL_BODY, fields: {} },
  drainUpstream: { body: SMALL_BODY, fields: { url: { characters: REFERENCE } } },
  sessionFinish: { body: SMALL_BODY, fields: { metrics: { items: 1024, each: 256 } } },
  rolloutPlan: {
    body: SMALL_BODY,
    fields: {
      environment: { characters: NAME },
      policy: { characters: REFERENCE },
      chat_template_kwargs: { json: 64 * KIB },
      metadata: { items: 1024, each: 256, json: 64 * KIB },
    },
  },
  rolloutGroups: {
    body: { ...SMALL_BODY, stringBytes: 256 * KIB },
    fields: { groups: { items: 1000 }, "groups.*.scenario": { json: 256 * KIB } },
  },
  rolloutLease: {
    body: SMALL_BODY,
    fields: { worker: { characters: NAME }, environments: { items: 64 }, "environments.*.name": { characters: NAME } },
  },
  rolloutHeartbeat: { body: SMALL_BODY, fields: { leases: { items: 10_000 } } },
  rolloutRelease: { body: SMALL_BODY, fields: { leases: { items: 10_000 } } },
  rolloutOutcome: {
    body: { bytes: Infinity, depth: MAX_JSON_DEPTH, values: Infinity, stringBytes: 4 * MIB },
    fields: { ...under("trajectory", TRAJECTORY_LIMITS), replaced: { items: 1000 } },
  },
} as const satisfies Readonly<Record<string, RequestLimit>>;

/** Kind of a request with a JSON body. */
export type RequestKind = keyof typeof REQUEST_LIMITS;

/** Max bytes of a line of training data. */
export const MAX_DATA_LINE_BYTES = 16 * MIB;

/** Node of a tree of field paths: the limit at a path, and the fields below it by name; `*` stands for each item of a list. */
interface LimitNode {
  limit: FieldLimit | null;
  readonly fields: Map<string, LimitNode>;
}

const newNode = (): LimitNode => ({ limit: null, fields: new Map() });

/** Trees of the limits that were used so far. */
const trees = new WeakMap<FieldLimits, LimitNode>();

/** Returns the limits as a tree of path segments, so that a body is walked once. */
function treeOf(limits: FieldLimits): LimitNode {
  return getOrInsert(trees, limits, () => {
    const root = newNode();
    for (const [path, limit] of Object.entries(limits)) {
      let node = root;
      for (const segment of path.split(".")) node = getOrInsert(node.fields, segment, newNode);
      node.limit = limit;
    }
    return root;
  });
}

/** Returns the error for a field over its limit. `expected` has the limit and its unit. */
function limitError(param: string, expected: string, got: number): ArgumentError {
  return new ArgumentError(`Expected \`${param}\` to have at most ${expected}, got ${got}`, { param });
}

/** Checks the lengths of the strings in a list, or of the keys of an object. `entryName` names one of them in errors. */
function checkStrings(
  entries: readonly unknown[],
  { each = Infinity, total = Infinity }: FieldLimit,
  param: string,
  entryName: string,
): void {
  let sum = 0;
  for (const text of entries) {
    if (typeof text !== "string") continue;
    if (text.length > each) throw limitError(param, `${each} characters in each ${entryName}`, text.length);
    sum += text.length;
  }
  if (sum > total) throw limitError(param, `${total} characters in all`, sum);
}

/** Checks one value. Checks its string and list lengths first, so that only a value within these limits is serialized to JSON. */
function checkValue(value: unknown, limit: FieldLimit, param: string): void {
  const { characters = Infinity, items = Infinity, json } = limit;
  if (typeof value === "string") {
    if (value.length > characters) throw limitError(param, `${characters} characters`, value.length);
    if (json !== undefined && value.length > json) throw limitError(param, `${json} characters`, value.length);
    return;
  }
  if (typeof value !== "object" || value === null) return;
  const isList = Array.isArray(value);
  const entries: readonly unknown[] = isList ? value : Object.keys(value);
  if (entries.length > items) throw limitError(param, `${items} ${isList ? "items" : "members"}`, entries.length);
  if (limit.each !== undefined || limit.total !== undefined) checkStrings(entries, limit, param, isList ? "item" : "key");
  if (json === undefined) return;
  const { length } = JSON.stringify(value);
  if (length > json) throw limitError(param, `${json} characters as JSON`, length);
}

/** Checks a value and the fields below it. `param` is its path in the body. */
function checkNode(value: unknown, { limit, fields }: LimitNode, param: string): void {
  if (limit !== null) checkValue(value, limit, param);
  if (fields.size === 0 || typeof value !== "object" || value === null) return;
  const prefix = param === "" ? "" : `${param}.`;
  if (Array.isArray(value)) {
    const itemNode = fields.get("*");
    if (itemNode !== undefined) for (let index = 0; index < value.length; index++) checkNode(value[index], itemNode, `${prefix}${index}`);
    return;
  }
  for (const [name, node] of fields) {
    if (Object.hasOwn(value, name)) checkNode((value as Readonly<Record<string, unknown>>)[name], node, `${prefix}${name}`);
  }
}

/**
 * Checks the lists and strings of a parsed body before any other validation. A value of an unexpected type is ignored; schema validation
 * reports it.
 *
 * @param path - Path of `value` in the body. @default the body itself
 * @throws ArgumentError `E_ARGUMENT` naming the first field over its limit, the limit and the size received.
 */
export function checkFieldLimits(value: unknown, limits: FieldLimits, path = ""): void {
  checkNode(value, treeOf(limits), path);
}
