/** What a Tinker-protocol server answers, as far as it is read here. Further keys are the server's own. */
import { z } from "zod";

/** A list of numbers as the wire carries it; JSON has no NaN, and servers write null for it. */
const numbers = z.array(
  z
    .number()
    .nullable()
    .transform((value) => value ?? NaN),
);
const tensor = z.looseObject({ data: numbers });

export const capabilitiesAnswer = z.looseObject({
  supported_models: z.array(z.looseObject({ model_name: z.string(), max_context_length: z.number().nullish() })),
});

export const sessionAnswer = z.looseObject({ session_id: z.string() });

/** What every POST that starts work answers: the name of the future. */
export const submittedAnswer = z.looseObject({ request_id: z.string() });

export const createdModelAnswer = z.looseObject({
  model_id: z.string(),
  lora_config: z.looseObject({ rank: z.number(), alpha: z.number().nullish() }).nullish(),
});

export const passAnswer = z.looseObject({ loss_fn_outputs: z.array(z.looseObject({ logprobs: tensor })) });

export const stepAnswer = z.looseObject({ metrics: z.record(z.string(), z.number().nullable()).nullish() });

/** Of weights that were saved under a name. */
export const savedAnswer = z.looseObject({ path: z.string() });

/** Of weights that only a sampler of this session knows. */
export const samplerAnswer = z.looseObject({ sampling_session_id: z.string() });

/** Of what is carried out and says nothing more. */
export const doneAnswer = z.looseObject({});

export const sampleAnswer = z.looseObject({
  sequences: z.array(z.looseObject({ stop_reason: z.enum(["stop", "length"]), tokens: z.array(z.number()), logprobs: numbers })).min(1),
});

/** A sequence as it was sampled. */
export type SampledSequence = z.infer<typeof sampleAnswer>["sequences"][number];

/** What a future says while, or instead of, giving a result. */
export const unfinishedAnswer = z.union([
  z.looseObject({ type: z.literal("try_again") }),
  z.looseObject({ error: z.string(), category: z.enum(["unknown", "server", "user"]).nullish() }),
]);

/** Bodies of errors. */
export const errorAnswer = z.union([
  z.looseObject({ detail: z.string() }).transform(({ detail }) => detail),
  z
    .looseObject({ detail: z.array(z.looseObject({ msg: z.string(), loc: z.array(z.union([z.string(), z.number()])) })) })
    .transform(({ detail }) => detail.map(({ msg, loc }) => `${loc.join(".")}: ${msg}`).join("; ")),
  z.looseObject({ error: z.string() }).transform(({ error }) => error),
]);
