/**
 * Captures a chat loop around the openai client: two questions, one conversation, one training row. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/capture-openai.ts
 *
 * Prints each captured turn, and whether its prompt extends the previous turn token for token.
 */
import OpenAI from "openai";
import { connect } from "whetstone";
import { capture } from "whetstone/capture";

const service = await connect();
const model = await service.models.create({ project: "demo", name: "captured", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy();
const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, fetch: capture.fetch });

/** Runs the unmodified agent. */
async function chat(): Promise<{ readonly reward: number }> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [];
  for (const question of ["cat", "dog"]) {
    messages.push({ role: "user", content: question });
    const { choices } = await client.chat.completions.create({ model: policy.id, messages, max_completion_tokens: 8 });
    const answer = choices[0]?.message;
    if (answer !== undefined) messages.push(answer);
  }
  return { reward: messages.length };
}

const recorded = await capture.trajectory(chat, { policy });

let before: readonly number[] = [];
for (const { message, prompt_token_ids: prompt, token_ids: sampled, logprobs } of recorded.choices) {
  const goesOn = before.every((id, index) => prompt?.[index] === id);
  console.log({ text: message.content, prompt: prompt?.length, sampled: sampled?.length, logprobs: logprobs?.content?.length, goesOn });
  before = [...(prompt ?? []), ...(sampled ?? [])];
}
console.log({ reward: recorded.reward, policyVersion: recorded.initialPolicyVersion, turns: recorded.choices.length });
await service.close();
