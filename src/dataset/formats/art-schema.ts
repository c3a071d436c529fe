/** Schema of the exchanges in trajectories of ART: requests and responses of four APIs, with the fields that the reader uses. */
import { z } from "zod";
import { chatCompletion, chatCompletionRequest } from "../../schema/index.ts";

const block = z.looseObject({ type: z.string() });
export type ArtBlock = z.infer<typeof block>;

const blocks = z.union([z.string(), z.array(block)]);

const item = z.looseObject({
  type: z.string().nullish(),
  role: z.string().nullish(),
  content: blocks.nullish(),
  call_id: z.string().nullish(),
  name: z.string().nullish(),
  arguments: z.string().nullish(),
  output: blocks.nullish(),
  summary: z.array(block).nullish(),
});
export type ArtItem = z.infer<typeof item>;

const tool = z.looseObject({
  type: z.string().nullish(),
  name: z.string().nullish(),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
  input_schema: z.record(z.string(), z.unknown()).nullish(),
});
export type ArtTool = z.infer<typeof tool>;

const ids = z.array(z.int()).nullish();
const numbers = z.array(z.number()).nullish();
const scored = z.array(z.looseObject({ token: z.string().nullish(), token_id: z.int().nullish(), logprob: z.number() })).nullish();

/** Adds the fields that exchanges of every API have. */
function exchange<Request extends z.ZodType, Response extends z.ZodType>(request: Request, response: Response) {
  return z.looseObject({ request, response, model: z.string().nullish(), start_time: z.string(), end_time: z.string() });
}

const messagesExchange = exchange(
  z.looseObject({
    system: blocks.nullish(),
    messages: z.array(z.looseObject({ role: z.enum(["user", "assistant", "system"]), content: blocks })),
    tools: z.array(tool).nullish(),
  }),
  z.looseObject({
    id: z.string(),
    model: z.string(),
    content: z.array(block),
    stop_reason: z.string().nullish(),
    prompt_token_ids: ids,
    token_ids: ids,
    logprobs: numbers,
  }),
);
export type MessagesExchange = z.infer<typeof messagesExchange>;

const responsesExchange = exchange(
  z.looseObject({
    input: z.union([z.string(), z.array(item)]).nullish(),
    instructions: z.string().nullish(),
    previous_response_id: z.string().nullish(),
    tools: z.array(tool).nullish(),
  }),
  z.looseObject({
    id: z.string(),
    model: z.string(),
    output: z.array(item),
    status: z.string().nullish(),
    incomplete_details: z.looseObject({ reason: z.string().nullish() }).nullish(),
    token_generations: z.array(z.looseObject({ prompt_token_ids: ids, token_ids: ids, output_tokens: scored })).nullish(),
  }),
);
export type ResponsesExchange = z.infer<typeof responsesExchange>;

const completionsExchange = exchange(
  z.looseObject({
    prompt: z.union([z.string(), z.array(z.int()), z.array(z.string()), z.array(z.array(z.int()))]),
    echo: z.boolean().nullish(),
  }),
  z.looseObject({
    id: z.string(),
    model: z.string(),
    prompt_token_ids: ids,
    choices: z.array(
      z.looseObject({
        index: z.int(),
        text: z.string(),
        finish_reason: z.string().nullish(),
        prompt_token_ids: ids,
        token_ids: ids,
        logprobs: z.looseObject({ tokens: z.array(z.string()).nullish(), token_logprobs: numbers }).nullish(),
      }),
    ),
  }),
);
export type CompletionsExchange = z.infer<typeof completionsExchange>;

const chatExchange = exchange(chatCompletionRequest, chatCompletion.extend({ usage: chatCompletion.shape.usage.nullish() }));
export type ChatExchange = z.infer<typeof chatExchange>;

/** Schema of the member `exchanges` of a trajectory. */
export const artExchanges = z.looseObject({
  chat_completions: z.array(chatExchange).default([]),
  completions: z.array(completionsExchange).default([]),
  responses: z.array(responsesExchange).default([]),
  messages: z.array(messagesExchange).default([]),
});
export type ArtExchanges = z.infer<typeof artExchanges>;
