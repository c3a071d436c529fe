/**
 * Captures a LangChain.js agent that delegates part of its work to a sub-agent: the sub-agent's conversation is an additional history and
 * is trained with the same reward. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/capture-langchain.ts
 *
 * Prints each history with its turns.
 */
import { HumanMessage, type BaseMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { connect } from "whetstone";
import { capture } from "whetstone/capture";
import { assistantChoice } from "whetstone/schema";

const service = await connect();
const model = await service.models.create({ project: "demo", name: "captured", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy();
const { inferenceUrl: baseURL, apiKey } = service;
const llm = new ChatOpenAI({ model: policy.id, apiKey, maxTokens: 8, configuration: { baseURL, fetch: capture.fetch } });

/** Runs the unmodified agent. */
async function delegate(): Promise<{ readonly reward: number }> {
  const messages: BaseMessage[] = [new HumanMessage("cat")];
  messages.push(await llm.invoke(messages));
  const { text } = await llm.invoke([new HumanMessage("sub-agent: dog")]);
  messages.push(new HumanMessage(text || "nothing"));
  messages.push(await llm.invoke(messages));
  return { reward: messages.length };
}

const recorded = await capture.trajectory(delegate, { policy });

const main = recorded.toJSON();
for (const [index, { messages_and_choices: items }] of [main, ...main.additional_histories].entries()) {
  console.log(index === 0 ? "main history" : `additional history ${index}`);
  for (const item of items) {
    // Choices were sampled; plain messages are context.
    const choice = assistantChoice.safeParse(item).data;
    if (choice === undefined) console.log("  context", item["role"], item["content"]);
    else console.log("  sampled", choice.message.content, choice.token_ids?.length, "tokens");
  }
}
await service.close();
