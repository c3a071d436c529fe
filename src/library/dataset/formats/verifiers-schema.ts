/** Schema of the lines of verifiers' `traces.jsonl`: the fields that the reader uses. Nulls may be left out, and other keys are ignored. */
import { z } from "zod";

/** Error of an episode or a trace. */
const failure = z.looseObject({
  /** Class of the error. */
  type: z.string(),
  /** Message of the error. */
  message: z.string(),
  /** Stack trace. */
  traceback: z.string().nullish(),
});

const tool = z.looseObject({
  type: z.string().default("function"),
  name: z.string(),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
  strict: z.boolean().nullish(),
});
/** Tool of a trace. */
export type VerifiersTool = z.infer<typeof tool>;

const message = z.looseObject({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]).nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z.array(z.looseObject({ id: z.string(), name: z.string(), arguments: z.string() })).nullish(),
  tool_call_id: z.string().nullish(),
  name: z.string().nullish(),
});
/** Message of a node. */
export type VerifiersMessage = z.infer<typeof message>;

const node = z.looseObject({
  /** Index of the previous message of the conversation; absent for the first. */
  parent: z.int().min(0).nullish(),
  /** Tools of the conversation, on its first message. */
  tools: z.array(tool).default([]),
  /** Links to turns of other conversations. */
  semantic_parents: z.array(z.looseObject({ node: z.int().min(0), type: z.string() })).default([]),
  message,
  /** Whether a model call produced the message. */
  sampled: z.boolean().default(false),
  /** Tokens that the message adds to the conversation. */
  token_ids: z.array(z.int()).default([]),
  /** Whether each token was sampled. */
  mask: z.array(z.boolean()).default([]),
  /** Log-probability of each sampled token. */
  logprobs: z.array(z.number()).default([]),
});
/** Node of the message graph of a trace: a message with the tokens that it adds to the conversation. */
export type VerifiersNode = z.infer<typeof node>;

/** Model call that produced a node. */
const call = z.looseObject({
  /** Index of the node with the answer. */
  node: z.int().nullish(),
  model: z.string().nullish(),
  sampling: z.record(z.string(), z.unknown()).nullish(),
  finish_reason: z.string().nullish(),
});

/** Task of an episode; `key`, or else `hash`, identifies it. */
const task = z.looseObject({ type: z.string(), key: z.string().nullish(), hash: z.string().nullish() });

const trace = z.looseObject({
  version: z.literal(1),
  id: z.string(),
  task,
  agent: z.looseObject({ name: z.string().default("agent"), trainable: z.boolean().default(true) }),
  tools: z.array(tool).default([]),
  nodes: z.array(node).default([]),
  calls: z.array(call).default([]),
  /** Weighted parts of the reward; null for a part that was not computed. */
  rewards: z.record(z.string(), z.looseObject({ score: z.number(), weight: z.number().default(1) }).nullable()).default({}),
  metrics: z.record(z.string(), z.number().nullable()).default({}),
  /** Whether the run ended without an error. */
  ok: z.boolean().default(false),
  /** Name of the condition that ended the run. */
  stop_condition: z.string().nullish(),
  errors: z.array(failure).default([]),
  /** Start of the run, in seconds since 1970. */
  timing: z.looseObject({ start: z.number().nullish() }).nullish(),
});
/** Run of one agent in an episode, with its message graph. */
export type VerifiersTrace = z.infer<typeof trace>;

/** Schema of a line, {@link VerifiersEpisode}. */
export const verifiersEpisode = z.looseObject({
  id: z.string(),
  env: z.looseObject({ id: z.string().nullish(), name: z.string().nullish() }).nullish(),
  task,
  /** Group of episodes of the same task, whose rewards are compared. */
  group: z.looseObject({ id: z.string() }).nullish(),
  /** Steps of the policy at the start and the end of the episode. */
  run: z.looseObject({ work: z.looseObject({ policy: z.looseObject({ start: z.int(), end: z.int() }).nullish() }).nullish() }).nullish(),
  ok: z.boolean().default(false),
  errors: z.array(failure).default([]),
  traces: z.array(trace).default([]),
});
/** Run of an environment, with a trace for each agent. */
export type VerifiersEpisode = z.infer<typeof verifiersEpisode>;
