/**
 * Captures a streaming agent of the AI SDK: the agent receives the text as it is generated, and the trajectory contains every token. Starts
 * the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/capture-ai-sdk.ts
 *
 * Prints the number of chunks that the agent received, and the captured data.
 */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";
import { connect } from "whetstone";
import { capture } from "whetstone/capture";

const service = await connect();
const model = await service.models.create({ project: "demo", name: "captured", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy();
const { inferenceUrl: baseURL, apiKey } = service;
const provider = createOpenAICompatible({ name: "whetstone", baseURL, apiKey, fetch: capture.fetch });

/** Runs the unmodified agent. */
async function stream(): Promise<{ readonly reward: number; readonly metrics: { readonly pieces: number } }> {
  const { textStream } = streamText({ model: provider(policy.id), prompt: "cat", maxOutputTokens: 16 });
  let text = "";
  let pieces = 0;
  for await (const piece of textStream) {
    text += piece;
    pieces++;
  }
  return { reward: text.length, metrics: { pieces } };
}

const recorded = await capture.trajectory(stream, { policy });

for (const { message, prompt_token_ids: prompt, token_ids: sampled, logprobs } of recorded.choices) {
  console.log({ text: message.content, prompt: prompt?.length, sampled: sampled?.length, logprobs: logprobs?.content?.length });
}
console.log({ reward: recorded.reward, pieces: recorded.metrics["pieces"], turns: recorded.choices.length });
await service.close();
