/** Schema of ATIF, the Agent Trajectory Interchange Format of Harbor, up to version 1.8. Unknown keys are errors, as in Harbor. */
import { z } from "zod";

/** Version that the writer states. */
export const ATIF_VERSION = "ATIF-v1.8";

/** Data that the format has no field for. */
const extra = z.record(z.string(), z.unknown()).nullish();

/** Part of a message's content. */
const part = z.strictObject({
  /** Kind of the part. */
  type: z.enum(["text", "image", "audio"]),
  /** Text of a text part. */
  text: z.string().nullish(),
  /** Media type and path of an image or of audio. */
  source: z.record(z.string(), z.unknown()).nullish(),
});

/** Content of a message or a result. */
const content = z.union([z.string(), z.array(part)]);

const toolCall = z.strictObject({
  /** Identifier that the observation repeats. */
  tool_call_id: z.string(),
  /** Name of the called function. */
  function_name: z.string(),
  /** Arguments, an object. */
  arguments: z.record(z.string(), z.unknown()),
  /** Other data of the call. */
  extra,
});

/** Result in an observation. */
const result = z.strictObject({
  /** Identifier of the call that the result answers. */
  source_call_id: z.string().nullish(),
  /** Text or parts of the result. */
  content: content.nullish(),
  /** Trajectories of sub-agents that produced the result. */
  subagent_trajectory_ref: z
    .array(
      z.strictObject({
        /** `trajectory_id` of an embedded trajectory. */
        trajectory_id: z.string().nullish(),
        /** Run of the sub-agent. */
        session_id: z.string().nullish(),
        /** Location of a trajectory in another file. */
        trajectory_path: z.string().nullish(),
        /** Other data of the reference. */
        extra,
      }),
    )
    .nullish(),
  /** Other data of the result. */
  extra,
});

/** Tokens and costs of a model call. */
const metrics = z.strictObject({
  /** Number of prompt tokens. */
  prompt_tokens: z.int().nullish(),
  /** Number of sampled tokens. */
  completion_tokens: z.int().nullish(),
  /** Prompt tokens read from a cache. */
  cached_tokens: z.int().nullish(),
  /** Cost of the call in US dollars. */
  cost_usd: z.number().nullish(),
  /** Token identifiers of the prompt. */
  prompt_token_ids: z.array(z.int()).nullish(),
  /** Identifiers of the sampled tokens. */
  completion_token_ids: z.array(z.int()).nullish(),
  /** Log-probability of each sampled token. */
  logprobs: z.array(z.number()).nullish(),
  /** Other data of the call. */
  extra,
});

const step = z.strictObject({
  /** Number of the step: 1, 2, 3 … */
  step_id: z.int().min(1),
  /** Time of the step, ISO 8601. */
  timestamp: z.string().nullish(),
  /** Author of the step. */
  source: z.enum(["system", "user", "agent"]),
  /** Model of an agent's step, if it is not the agent's default. */
  model_name: z.string().nullish(),
  /** Reasoning effort of an agent's step. */
  reasoning_effort: z.union([z.string(), z.number()]).nullish(),
  /** Text, or parts. */
  message: content,
  /** Reasoning of an agent's step. */
  reasoning_content: z.string().nullish(),
  /** Tool calls of an agent's step. */
  tool_calls: z.array(toolCall).nullish(),
  /** Results of the calls, or other feedback after the step. */
  observation: z
    .strictObject({
      /** Results in order. */
      results: z.array(result),
    })
    .nullish(),
  /** Tokens and costs of the model's call. */
  metrics: metrics.nullish(),
  /** Whether the step was copied from another trajectory as context; such steps are not trained. */
  is_copied_context: z.boolean().nullish(),
  /** Number of model calls of the step; 0 for a step without a model. */
  llm_call_count: z.int().min(0).nullish(),
  /** Other data of the step. */
  extra,
});
/** Step of an {@link AtifTrajectory}. */
export type AtifStep = z.infer<typeof step>;

/** Fields that only a step of source `agent` may have. */
const AGENT_FIELDS = ["model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"] as const;

/** Checks the rules that concern several fields of a step. @param add - Called with the path and the message of each violation. */
function checkStep(value: AtifStep, index: number, add: (path: PropertyKey[], message: string) => void): void {
  if (value.step_id !== index + 1) add(["step_id"], `expected ${index + 1}, the position of the step from 1, received ${value.step_id}`);
  for (const field of AGENT_FIELDS) {
    const isGiven = value[field] !== undefined && value[field] !== null;
    if (isGiven && value.source !== "agent")
      add([field], `expected only in a step of source \`agent\`, received source \`${value.source}\``);
  }
  for (const field of ["metrics", "reasoning_content"] as const) {
    const isGiven = value[field] !== undefined && value[field] !== null;
    if (isGiven && value.llm_call_count === 0) add([field], "expected nothing in a step with `llm_call_count` 0, received a value");
  }
  const calls = new Set((value.tool_calls ?? []).map((call) => call.tool_call_id));
  for (const [at, { source_call_id: id }] of (value.observation?.results ?? []).entries()) {
    if (id === undefined || id === null || calls.has(id)) continue;
    add(["observation", "results", at, "source_call_id"], `expected a \`tool_call_id\` of the same step, received "${id}"`);
  }
}

/** Schema of a document without its sub-agents. */
const flatTrajectory = z.strictObject({
  /** Version of the format, `ATIF-v1.0` to `ATIF-v1.8`. */
  schema_version: z.string().regex(/^ATIF-v1\.[0-8]$/u, "expected ATIF-v1.0 to ATIF-v1.8"),
  /** Identifier of the run. */
  session_id: z.string().nullish(),
  /** Identifier of the document; required in `subagent_trajectories`. */
  trajectory_id: z.string().nullish(),
  /** Agent that produced the trajectory. */
  agent: z.strictObject({
    /** Name of the agent. */
    name: z.string(),
    /** Version of the agent. */
    version: z.string(),
    /** Default model of the agent. */
    model_name: z.string().nullish(),
    /** Tools in the form of chat completions. */
    tool_definitions: z.array(z.record(z.string(), z.unknown())).nullish(),
    /** Other data of the agent. */
    extra,
  }),
  /** Steps in order; at least one. */
  steps: z.array(step).min(1),
  /** Notes on the trajectory. */
  notes: z.string().nullish(),
  /** Sums over all steps. */
  final_metrics: z
    .strictObject({
      /** Sum of prompt tokens. */
      total_prompt_tokens: z.int().nullish(),
      /** Sum of sampled tokens. */
      total_completion_tokens: z.int().nullish(),
      /** Sum of cached tokens. */
      total_cached_tokens: z.int().nullish(),
      /** Cost in US dollars. */
      total_cost_usd: z.number().nullish(),
      /** Number of steps. */
      total_steps: z.int().min(0).nullish(),
      /** Other sums. */
      extra,
    })
    .nullish(),
  /** File in which the trajectory continues. */
  continued_trajectory_ref: z.string().nullish(),
  /** Other data of the trajectory. */
  extra,
});
/** Document of ATIF, the Agent Trajectory Interchange Format of Harbor: one agent's run as steps. @interface */
export type AtifTrajectory = z.infer<typeof flatTrajectory> & {
  /** Embedded trajectories of sub-agents. */
  subagent_trajectories?: AtifTrajectory[] | null | undefined;
};

/** Schema of {@link AtifTrajectory}. */
export const atifTrajectory: z.ZodType<AtifTrajectory> = flatTrajectory
  .extend({
    get subagent_trajectories() {
      return z.array(atifTrajectory).nullish();
    },
  })
  .superRefine(({ steps, subagent_trajectories: embedded }, context) => {
    const add = (path: PropertyKey[], message: string) => context.addIssue({ code: "custom", path, message });
    for (const [index, value] of steps.entries()) checkStep(value, index, (path, message) => add(["steps", index, ...path], message));
    const ids = new Set<string>();
    for (const [index, { trajectory_id: id }] of (embedded ?? []).entries()) {
      const path = ["subagent_trajectories", index, "trajectory_id"];
      if (typeof id !== "string") add(path, `expected an identifier, received ${String(id)}`);
      else if (ids.has(id)) add(path, `expected an identifier of its own, received "${id}" again`);
      else ids.add(id);
    }
  });
