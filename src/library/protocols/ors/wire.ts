/** Schemas of the JSON bodies of the Open Reward Standard (openreward 0.1), with the fields used here. */
import { z } from "zod";

/** Part of a message or of an output: a text, an image or another type. */
const block = z.looseObject({ type: z.string(), text: z.string().nullish(), mimeType: z.string().nullish() });

/** Schema of the content of a prompt or a tool's output. */
export const blocks = z.array(block);

/** Schema of the response of `GET /{env}/messages`. */
export const messages = z.array(
  z.looseObject({
    role: z.enum(["system", "user", "assistant"]),
    blocks: z.array(
      block.extend({
        id: z.string().nullish(),
        name: z.string().nullish(),
        input: z.record(z.string(), z.unknown()).nullish(),
        tool_call_id: z.string().nullish(),
        blocks: blocks.nullish(),
      }),
    ),
  }),
);

/** Schema of the response of `GET /{env}/tools` and `GET /{env}/task_tools`. */
export const tools = z.looseObject({
  tools: z.array(
    z.looseObject({
      name: z.string().min(1),
      description: z.string().nullish(),
      input_schema: z.record(z.string(), z.unknown()).nullish(),
    }),
  ),
  terminal_tool: z.looseObject({ name: z.string(), arg: z.string().nullish() }).nullish(),
  supports_score_group: z.boolean().nullish(),
  message_block_types: z.array(z.string()).nullish(),
});

/** Schema of the result of `POST /{env}/call`. */
export const callResult = z.discriminatedUnion("ok", [
  z.looseObject({
    ok: z.literal(true),
    output: z.looseObject({ blocks, reward: z.number().nullish(), finished: z.boolean().default(false) }),
  }),
  z.looseObject({ ok: z.literal(false), error: z.string(), reason: z.string().nullish() }),
]);

/** Schema of the result of `POST /{env}/score_group`. */
export const groupResult = z.looseObject({ scores: z.array(z.looseObject({ reward: z.number() })) });

/** Schema of the response of `GET /list_environments`. */
export const environments = z.array(z.string());
/** Schema of the response of `GET /{env}/splits`. */
export const splits = z.array(z.looseObject({ name: z.string(), type: z.string() }));
/** Schema of the response of `POST /{env}/num_tasks`. */
export const taskCount = z.looseObject({ num_tasks: z.number().int().nonnegative() });
