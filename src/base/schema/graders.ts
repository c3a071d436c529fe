/** Schemas of graders, in the format of OpenAI's fine-tuning API. Texts of a grader are templates; `whetstone/graders` runs graders. */

import { z } from "zod";
import { isRecord } from "../util/values.ts";

/** Name of a grader. */
const graderName = z.string().min(1).max(256);

/** Schema of {@link StringCheckGrader}. */
export const stringCheckGrader = z.strictObject({
  /** Kind of grader. */
  type: z.literal("string_check"),
  /** Name of the grader. */
  name: graderName,
  /** `eq`: equal, `ne`: different, `like`: the input contains the reference, `ilike`: the same without case. */
  operation: z.literal(["eq", "ne", "like", "ilike"]),
  /** Template of the text to check. */
  input: z.string(),
  /** Template of the text to compare with. */
  reference: z.string(),
});
/** Grader that compares two texts: 1 or 0. @interface */
export type StringCheckGrader = z.infer<typeof stringCheckGrader>;

/** Schema of {@link TextMetric}. */
export const textMetric = z.literal([
  ...(["fuzzy_match", "bleu", "gleu", "meteor"] as const),
  ...(["rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l"] as const),
]);
/** Metric of a text similarity grader. */
export type TextMetric = z.infer<typeof textMetric>;

/** Schema of {@link TextSimilarityGrader}. */
export const textSimilarityGrader = z.strictObject({
  /** Kind of grader. */
  type: z.literal("text_similarity"),
  /** Name of the grader. */
  name: graderName,
  /** Metric. */
  evaluation_metric: textMetric,
  /** Template of the text to score. */
  input: z.string(),
  /** Template of the right text. */
  reference: z.string(),
});
/** Grader that scores the similarity of two texts in [0, 1]. @interface */
export type TextSimilarityGrader = z.infer<typeof textSimilarityGrader>;

/** Schema of a text part in a message of a model grader. */
export const graderTextPart = z.strictObject({
  /** Kind of part. */
  type: z.literal(["input_text", "output_text"]),
  /** Template of the text. */
  text: z.string(),
});

/** Schema of {@link GraderMessage}. */
export const graderMessage = z.strictObject({
  /** Kind of input. */
  type: z.literal("message").optional(),
  /** Author of the message. */
  role: z.literal(["user", "assistant", "system", "developer"]),
  /** Template of the text, a text part, or a list of both. */
  content: z.union([z.string(), graderTextPart, z.array(z.union([z.string(), graderTextPart])).min(1)]),
});
/** Message for the model of a grader. @interface */
export type GraderMessage = z.infer<typeof graderMessage>;

/** Schema of {@link ScoreModelGrader}. */
export const scoreModelGrader = z.strictObject({
  /** Kind of grader. */
  type: z.literal("score_model"),
  /** Name of the grader. */
  name: graderName,
  /** Model that scores. */
  model: z.string().min(1),
  /** Messages for the model. */
  input: z.array(graderMessage).min(1),
  /** Lowest and highest score; a score outside is moved to the nearer end. @default [0, 1] */
  range: z
    .array(z.number())
    .length(2)
    .refine(([low = 0, high = 0]) => low < high, "expected the lowest score first, then a higher one")
    .optional(),
  /** Sampling settings of the model. */
  sampling_params: z
    .strictObject({
      /** Max tokens of the answer, reasoning included. The name is OpenAI's. @default as many as the context has room for */
      max_completions_tokens: z.int().min(1).nullish(),
      /** Amount of reasoning. @default of the model */
      reasoning_effort: z.literal(["none", "minimal", "low", "medium", "high", "xhigh", "max"]).nullish(),
      /** Seed of the answer. */
      seed: z.int().nullish(),
      /** Sampling temperature. @default of the model */
      temperature: z.number().min(0).nullish(),
      /** Probability mass of nucleus sampling. @default of the model */
      top_p: z.number().gt(0).max(1).nullish(),
    })
    .optional(),
});
/** Grader for which a model returns a score. @interface */
export type ScoreModelGrader = z.infer<typeof scoreModelGrader>;

/** Schema of {@link LabelModelGrader}. */
export const labelModelGrader = z
  .strictObject({
    /** Kind of grader. */
    type: z.literal("label_model"),
    /** Name of the grader. */
    name: graderName,
    /** Model that chooses a label. */
    model: z.string().min(1),
    /** Messages for the model. */
    input: z.array(graderMessage).min(1),
    /** Labels to choose from, all different. */
    labels: z
      .array(z.string().min(1))
      .min(1)
      .refine((labels) => new Set(labels).size === labels.length, "expected different labels"),
    /** Labels that score 1, a part of `labels`; the others score 0. */
    passing_labels: z.array(z.string()).min(1),
  })
  .superRefine(({ labels, passing_labels: passing }, context) => {
    const unknown = passing.filter((label) => !labels.includes(label));
    if (unknown.length === 0) return;
    context.addIssue({ code: "custom", message: "expected only entries of `labels`", path: ["passing_labels"], input: unknown });
  });
/** Grader for which a model chooses a label. @interface */
export type LabelModelGrader = z.infer<typeof labelModelGrader>;

/** Schema of {@link SingleGrader}. */
export const singleGrader = z.discriminatedUnion("type", [stringCheckGrader, textSimilarityGrader, scoreModelGrader, labelModelGrader]);
/** Grader that is not made of other graders. */
export type SingleGrader = z.infer<typeof singleGrader>;

/** Max number of graders in a multi grader. */
const MAX_GRADERS = 64;
/** Name that a formula can have. */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/u;

/** Converts a grader without a variable to an object in which its name is the variable. */
function byVariable(graders: unknown): unknown {
  return isRecord(graders) && typeof graders["type"] === "string" ? { [String(graders["name"])]: graders } : graders;
}

/** Reports the variables and names that are not valid. */
function checkParts(graders: Readonly<Record<string, SingleGrader>>, context: z.core.$RefinementCtx): void {
  const variables = Object.keys(graders);
  const names = Object.values(graders).map(({ name }) => name);
  const report = (message: string, input: unknown) => context.addIssue({ code: "custom", message, input });
  if (variables.length === 0 || variables.length > MAX_GRADERS) report(`expected 1 to ${MAX_GRADERS} graders`, variables.length);
  const invalid = variables.filter((variable) => !VARIABLE.test(variable));
  if (invalid.length > 0) report("expected variables of letters, digits and `_`, without a digit at the start", invalid);
  const repeated = names.filter((name, index) => names.indexOf(name) < index);
  if (repeated.length > 0) report("expected graders with different names", repeated);
}

/** Schema of {@link MultiGrader}. */
export const multiGrader = z.strictObject({
  /** Kind of grader. */
  type: z.literal("multi"),
  /** Name of the grader. @default "multi" */
  name: graderName.default("multi"),
  /**
   * Graders by the variable that stands for their score in `calculate_output`; at least 1 and at most 64, with different names. OpenAI's
   * types have one grader here; its variable is its name.
   */
  graders: z.preprocess(byVariable, z.record(z.string(), singleGrader).superRefine(checkParts)),
  /** Formula of the score, such as `0.8 * answer + 0.2 * format`. */
  calculate_output: z.string(),
});
/** Grader that computes a formula of the scores of other graders. @interface */
export type MultiGrader = z.infer<typeof multiGrader>;

/** Schema of {@link Grader}. */
export const grader = z.discriminatedUnion("type", [...singleGrader.options, multiGrader]);
/** Any supported grader. `python` graders are not supported. */
export type Grader = z.infer<typeof grader>;

/** Schema of {@link GraderErrors}. */
export const graderErrors = z.object({
  /** The formula of a multi grader does not parse, or has no finite value. */
  formula_parse_error: z.boolean(),
  /** A template names a field that the item does not have, or the formula an unknown grader. */
  invalid_variable_error: z.boolean(),
  /** The answer of a grader's model is not of the requested form, or was cut off. */
  model_grader_parse_error: z.boolean(),
  /** A grader's model refused to answer. */
  model_grader_refusal_error: z.boolean(),
  /** The request to a grader's model failed. */
  model_grader_server_error: z.boolean(),
  /** Message of the failed request; null without one. */
  model_grader_server_error_details: z.string().nullable(),
  /** Any other failure: the texts are too long for the metric. */
  other_error: z.boolean(),
  /** Always false: python graders are not supported. */
  python_grader_runtime_error: z.boolean(),
  /** Always null. */
  python_grader_runtime_error_details: z.string().nullable(),
  /** Always false: python graders are not supported. */
  python_grader_server_error: z.boolean(),
  /** Always null. */
  python_grader_server_error_type: z.string().nullable(),
  /** A template names a part of the sample that it does not have, such as a member of `output_json` of a text that is not JSON. */
  sample_parse_error: z.boolean(),
  /** The sample was cut off at its token limit. It is graded as it is. */
  truncated_observation_error: z.boolean(),
  /** A grader's model gave an empty answer, or none in time. */
  unresponsive_reward_error: z.boolean(),
  /** Extension: message of every error, with the name of its grader. */
  details: z.array(z.string()),
});
/** Errors of a graded sample. @interface */
export type GraderErrors = z.infer<typeof graderErrors>;

/** Schema of the tokens that a grader's model used. */
export const graderTokenUsage = z.object({
  /** Tokens of the prompts. */
  prompt_tokens: z.int(),
  /** Tokens of the answers. */
  completion_tokens: z.int(),
  /** Sum of both. */
  total_tokens: z.int(),
  /** Tokens of the prompts that were read from a cache, as the model reports them. */
  cached_tokens: z.int(),
});

/** Schema of {@link GraderRun}. */
export const graderRun = z.object({
  /** Score of the sample; 0 after an error. */
  reward: z.number(),
  /** Scores of the parts of a multi grader, by variable. */
  sub_rewards: z.record(z.string(), z.number()),
  /** Tokens by the model that answered. */
  model_grader_token_usage_per_model: z.record(z.string(), graderTokenUsage),
  /** Details of the run. */
  metadata: z.object({
    /** Name of the grader. */
    name: z.string(),
    /** Kind of grader. */
    type: z.string(),
    /** Failures. */
    errors: graderErrors,
    /** Duration in seconds. */
    execution_time: z.number(),
    /** Scores of the parts of a multi grader, by the name of the part. */
    scores: z.record(z.string(), z.number()),
    /** Tokens of all models; null if no model answered. */
    token_usage: z.int().nullable(),
    /** Model that answered, of the first model grader in a multi grader; null if no model answered. */
    sampled_model_name: z.string().nullable(),
  }),
});
/** Answer of a graded sample, in the format of `POST /v1/fine_tuning/alpha/graders/run`. @interface */
export type GraderRun = z.infer<typeof graderRun>;

/** Schema of {@link RunGraderRequest}. */
export const runGraderRequest = z.strictObject({
  /** Grader to run. */
  grader,
  /** Output of a model, the `sample` of templates; `sample.output_json` is its value if it is JSON. */
  model_sample: z.string(),
  /** Row of a dataset, the `item` of templates. @default {} */
  item: z.unknown().optional(),
});
/** Body of `POST /v1/fine_tuning/alpha/graders/run`. @interface */
export type RunGraderRequest = z.infer<typeof runGraderRequest>;

/** Schema of {@link ValidateGraderRequest}. */
export const validateGraderRequest = z.strictObject({
  /** Grader to check. */
  grader,
});
/** Body of `POST /v1/fine_tuning/alpha/graders/validate`. @interface */
export type ValidateGraderRequest = z.infer<typeof validateGraderRequest>;

/** Schema of {@link ValidatedGrader}. */
export const validatedGrader = z.object({
  /** Checked grader, with defaults. */
  grader,
});
/** Answer of `POST /v1/fine_tuning/alpha/graders/validate`. @interface */
export type ValidatedGrader = z.infer<typeof validatedGrader>;
