import { z } from "zod";
import { jsonValue } from "./common.ts";
import { assistantChoice, requestMessage } from "./chat.ts";

/** A function tool. `function.strict` and unknown keys are kept. */
export const tool = z.looseObject({
  type: z.literal("function").default("function"),
  function: z.looseObject({
    name: z.string().min(1),
    description: z.string().nullish(),
    parameters: z.record(z.string(), jsonValue).nullish(),
    strict: z.boolean().nullish(),
  }),
});
export type Tool = z.infer<typeof tool>;

/** A choice (a trainable assistant turn) or a plain message (context). A choice has the key `message`. */
export const messageOrChoice = z.union([assistantChoice, requestMessage]);
export type MessageOrChoice = z.infer<typeof messageOrChoice>;

/** An additional conversation of a trajectory: a sub-agent, or a compacted history. */
export const history = z.looseObject({
  messages_and_choices: z.array(messageOrChoice),
  tools: z.array(tool).nullish(),
});
export type History = z.infer<typeof history>;

const scalar = z.union([z.number(), z.string(), z.boolean(), z.null()]);

/** A rollout in its trained and stored form. Unknown keys are kept, so that files of other programs survive a round trip. */
export const trajectory = z.looseObject({
  messages_and_choices: z.array(messageOrChoice).default([]),
  tools: z.array(tool).nullish(),
  additional_histories: z.array(history).default([]),
  reward: z.number().default(0),
  initial_policy_version: z.int().nullish(),
  final_policy_version: z.int().nullish(),
  metrics: z.record(z.string(), z.union([z.number(), z.boolean()])).default({}),
  metadata: z.record(z.string(), scalar).default({}),
  logs: z.array(z.string()).default([]),
  /** Start time, ISO 8601. */
  start_time: z.string().nullish(),
});
export type Trajectory = z.infer<typeof trajectory>;

/** A failed rollout, recorded as data without affecting the other rollouts of its group. */
export const rolloutException = z.looseObject({
  type: z.string(),
  message: z.string(),
  traceback: z.string().default(""),
});
export type RolloutException = z.infer<typeof rolloutException>;

/** Rollouts of one scenario, with rewards compared within the group. */
export const trajectoryGroup = z.looseObject({
  trajectories: z.array(trajectory),
  exceptions: z.array(rolloutException).default([]),
  metadata: z.record(z.string(), scalar).default({}),
  metrics: z.record(z.string(), z.union([z.number(), z.boolean()])).default({}),
  logs: z.array(z.string()).default([]),
});
export type TrajectoryGroup = z.infer<typeof trajectoryGroup>;
