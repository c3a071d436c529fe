/** What a request says about its prompt: the conversation and how it becomes text and tokens. */
import { ArgumentError } from "../../errors.ts";
import type { RequestTool } from "../../schema/chat.ts";
import type { ChatMessage } from "../../tokenizer/index.ts";
import { BodyError } from "./errors.ts";
import type { CarriedBody } from "./fields.ts";
import { shown } from "./coercion.ts";
import { toTemplateMessage } from "./messages.ts";

/** See the file header. Two equal ones make the same prompt. */
export interface PromptRequest {
  readonly messages: readonly ChatMessage[];
  /** What the template is shown; null when there are none. */
  readonly tools: readonly RequestTool[] | null;
  /** Whether the prompt ends with the header of the assistant's turn. */
  readonly addGenerationPrompt: boolean;
  /** Whether the prompt ends inside the last message, which the model then continues. */
  readonly continuesFinalMessage: boolean;
  /** Whether the encoder adds the tokens of its post-processor to those of the template. */
  readonly addsSpecialTokens: boolean;
  /** Further variables of the template. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** A template that the request brings; null for the model's own. */
  readonly template: string | null;
}

function templateOf(body: CarriedBody): string | null {
  const template = body.chat_template ?? body.chat_template_kwargs?.["chat_template"] ?? null;
  if (template === null || typeof template === "string") return template;
  throw new BodyError(`\`chat_template_kwargs.chat_template\`: expected a string, got ${shown(template)}`);
}

/**
 * Reads the fields of a body that make its prompt.
 *
 * @throws ArgumentError `E_ARGUMENT` for message content that is not text, and for `continue_final_message` without
 *   `add_generation_prompt: false`.
 */
export function toPromptRequest(body: CarriedBody): PromptRequest {
  const { chat_template: _, ...kwargs } = body.chat_template_kwargs ?? {};
  const explicit = { documents: body.documents, reasoning_effort: body.reasoning_effort };
  const set = Object.entries(explicit).filter(([, value]) => value !== null && value !== undefined);
  const continuesFinalMessage = body.continue_final_message === true;
  // Both set to true are a contradiction in the body; here the default of the other field is in the way.
  if (continuesFinalMessage && body.add_generation_prompt !== false)
    throw new ArgumentError("`continue_final_message` needs `add_generation_prompt: false`; its default is true");
  return {
    messages: body.messages.map(toTemplateMessage),
    tools: body.tools?.length ? body.tools : null,
    addGenerationPrompt: body.add_generation_prompt ?? true,
    continuesFinalMessage,
    addsSpecialTokens: body.add_special_tokens === true,
    variables: { ...kwargs, ...Object.fromEntries(set), ...(continuesFinalMessage ? { continue_final_message: true } : {}) },
    template: templateOf(body),
  };
}

/** The text of the last message. */
export function finalText({ messages }: Pick<PromptRequest, "messages">): string {
  const content = messages.at(-1)!.content;
  // Messages were brought to one string each when they were read.
  return typeof content === "string" ? content : "";
}

/** What an answer begins with that repeats the text it continues; empty where it continues none. */
export function echoedText(request: Pick<PromptRequest, "messages" | "addGenerationPrompt"> & { readonly isEchoed: boolean }): string {
  return request.isEchoed && request.messages.at(-1)!.role === responseRole(request) ? finalText(request) : "";
}

/** The role in whose name the answer speaks: that of the last message when the prompt opens no turn of its own. */
export function responseRole({ messages, addGenerationPrompt }: Pick<PromptRequest, "messages" | "addGenerationPrompt">): string {
  return addGenerationPrompt ? "assistant" : messages.at(-1)!.role;
}
