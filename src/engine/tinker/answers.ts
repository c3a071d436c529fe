/** Schemas of the responses of a Tinker-protocol server. Keys that are not read here are allowed. */
import { z } from "zod";

/** List of numbers, in which null stands for NaN, which JSON lacks. */
const numbers = z.array(
  z
    .number()
    .nullable()
    .transform((value) => value ?? NaN),
);
const tensor = z.looseObject({ data: numbers });

/** Base models that the server trains and samples. */
export const capabilitiesAnswer = z.looseObject({
  supported_models: z.array(z.looseObject({ model_name: z.string(), max_context_length: z.number().nullish() })),
});

/** Result of opening a session. */
export const sessionAnswer = z.looseObject({ session_id: z.string() });

/** Response to a POST that starts an operation: the identifier of the future. */
export const submittedAnswer = z.looseObject({ request_id: z.string() });

/** Result of creating a model. `alpha` is the numerator of the adapter's scale. */
export const createdModelAnswer = z.looseObject({
  model_id: z.string(),
  lora_config: z.looseObject({ rank: z.number(), alpha: z.number().nullish() }).nullish(),
});

/** Result of a forward or forward-backward pass: log-probabilities `[T − 1]` of each datum. */
export const passAnswer = z.looseObject({ loss_fn_outputs: z.array(z.looseObject({ logprobs: tensor })) });

/** Result of an optimizer step. */
export const stepAnswer = z.looseObject({ metrics: z.record(z.string(), z.number().nullable()).nullish() });

/** Result of saving weights under a name. */
export const savedAnswer = z.looseObject({ path: z.string() });

/** Result of saving weights for a sampler of this session. */
export const samplerAnswer = z.looseObject({ sampling_session_id: z.string() });

/** Result of an operation without return value. */
export const doneAnswer = z.looseObject({});

/** Result of sampling: at least one sequence. */
export const sampleAnswer = z.looseObject({
  sequences: z.array(z.looseObject({ stop_reason: z.enum(["stop", "length"]), tokens: z.array(z.number()), logprobs: numbers })).min(1),
});

/** Sampled sequence. */
export type TinkerSequence = z.infer<typeof sampleAnswer>["sequences"][number];

/** Response of a future that has no result yet or has failed. */
export const unfinishedAnswer = z.union([
  z.looseObject({ type: z.literal("try_again") }),
  z.looseObject({ error: z.string(), category: z.enum(["unknown", "server", "user"]).nullish() }),
]);

/** Error bodies, transformed to their message. */
export const errorAnswer = z.union([
  z.looseObject({ detail: z.string() }).transform(({ detail }) => detail),
  z
    .looseObject({ detail: z.array(z.looseObject({ msg: z.string(), loc: z.array(z.union([z.string(), z.number()])) })) })
    .transform(({ detail }) => detail.map(({ msg, loc }) => `${loc.join(".")}: ${msg}`).join("; ")),
  z.looseObject({ error: z.string() }).transform(({ error }) => error),
]);
