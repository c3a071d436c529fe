/** Schemas of trajectories and groups, as they are sent and stored. */

import { z } from "zod";
import { jsonValue } from "./common.ts";
import { assistantChoice, requestMessage } from "./chat.ts";

/** Schema of {@link Tool}. */
export const tool = z.looseObject({
  /** Kind of tool; only functions are supported. */
  type: z.literal("function").default("function"),
  /** Callable function. */
  function: z.looseObject({
    /** Name by which the model calls the function. */
    name: z.string().min(1),
    /** Description for the model. */
    description: z.string().nullish(),
    /** JSON Schema of the arguments, an object. */
    parameters: z.record(z.string(), jsonValue).nullish(),
    /** Whether the arguments must match the schema exactly; kept and not evaluated. */
    strict: z.boolean().nullish(),
  }),
});
/** A function tool. `function.strict` and unknown keys are kept. @interface */
export type Tool = z.infer<typeof tool>;

/** Schema of {@link MessageOrChoice}. */
export const messageOrChoice = z.union([assistantChoice, requestMessage]);

/** A choice (a trainable assistant turn) or a plain message (context). A choice has the key `message`. */
export type MessageOrChoice = z.infer<typeof messageOrChoice>;

/** Schema of {@link History}. */
export const history = z.looseObject({
  /** Conversation in order: messages as context, choices as trained turns. */
  messages_and_choices: z.array(messageOrChoice),
  /** Tools available to the model in this conversation. */
  tools: z.array(tool).nullish(),
});
/** An additional conversation of a trajectory: a sub-agent, or a compacted history. @interface */
export type History = z.infer<typeof history>;

/** Value of a label. */
const scalar = z.union([z.number(), z.string(), z.boolean(), z.null()]);

/** Schema of {@link Trajectory}. */
export const trajectory = z.looseObject({
  /** Final state of the main conversation: messages as context, choices as trained turns. */
  messages_and_choices: z.array(messageOrChoice).default([]),
  /** Tools available to the model in the main conversation. */
  tools: z.array(tool).nullish(),
  /** Compacted parts of the main conversation, oldest first, then sub-conversations in creation order. */
  additional_histories: z.array(history).default([]),
  /** Reward of the rollout, compared within its group; finite. */
  reward: z.number().default(0),
  /** Lowest checkpoint step that sampled a choice, over all histories. */
  initial_policy_version: z.int().nullish(),
  /** Checkpoint step that sampled the most recent choice, over all histories. */
  final_policy_version: z.int().nullish(),
  /** Measurements of the rollout by name. */
  metrics: z.record(z.string(), z.union([z.number(), z.boolean()])).default({}),
  /** Labels of the rollout by name, such as the scenario's identifier. */
  metadata: z.record(z.string(), scalar).default({}),
  /** Lines of text written by the rollout. */
  logs: z.array(z.string()).default([]),
  /** Start time, ISO 8601. */
  start_time: z.string().nullish(),
});
/** A rollout in its trained and stored form. Unknown keys are kept, so that files of other programs survive a round trip. @interface */
export type Trajectory = z.infer<typeof trajectory>;

/** Schema of {@link RolloutException}. */
export const rolloutException = z.looseObject({
  /** Class of the thrown error, or the JavaScript type of another thrown value. */
  type: z.string(),
  /** Message of the error. */
  message: z.string(),
  /** Stack trace; empty if unknown. */
  traceback: z.string().default(""),
});
/** A failed rollout, recorded as data without affecting the other rollouts of its group. @interface */
export type RolloutException = z.infer<typeof rolloutException>;

/** Schema of {@link TrajectoryGroup}. */
export const trajectoryGroup = z.looseObject({
  /** Completed rollouts. */
  trajectories: z.array(trajectory),
  /** Failed rollouts. */
  exceptions: z.array(rolloutException).default([]),
  /** Labels of the group by name, such as the scenario's identifier. */
  metadata: z.record(z.string(), scalar).default({}),
  /** Measurements of the whole group by name. */
  metrics: z.record(z.string(), z.union([z.number(), z.boolean()])).default({}),
  /** Lines of text about the whole group. */
  logs: z.array(z.string()).default([]),
});
/** Rollouts of one scenario, with rewards compared within the group. @interface */
export type TrajectoryGroup = z.infer<typeof trajectoryGroup>;
