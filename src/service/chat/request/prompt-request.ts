/** Fields of a request that determine its prompt: the conversation, and its rendering to text and tokens. */
import { given } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { RequestTool } from "../../../base/schema/chat.ts";
import type { ChatMessage } from "../../../text/tokenizer/index.ts";
import { BodyError } from "./errors.ts";
import type { ChatFields } from "./fields.ts";
import { shown } from "../../../base/util/shown.ts";
import { toTemplateMessage } from "./messages.ts";
import { last } from "../../../base/util/values.ts";

/** Parsed prompt fields of a request. Equal values result in equal prompts. */
export interface PromptRequest {
  readonly messages: readonly ChatMessage[];
  /** Tools passed to the template; null for a request without tools. */
  readonly tools: readonly RequestTool[] | null;
  /** Whether the prompt ends with the header of the assistant's turn. */
  readonly addGenerationPrompt: boolean;
  /** Whether the prompt ends inside the last message, which the model then continues. */
  readonly continuesFinalMessage: boolean;
  /** Whether the encoder adds the tokens of its post-processor to the template's tokens. */
  readonly addsSpecialTokens: boolean;
  /** Additional template variables: `chat_template_kwargs`, and the fields that are variables under their own name. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** Names of the variables from `chat_template_kwargs`. */
  readonly templateKwargs: readonly string[];
  /** Template from the request; null for the model's own. */
  readonly template: string | null;
}

/** Returns the template of a request; null without one. */
function templateOf(body: ChatFields): string | null {
  const template = body.chat_template ?? body.chat_template_kwargs?.["chat_template"] ?? null;
  if (template === null || typeof template === "string") return template;
  throw new BodyError(`\`chat_template_kwargs.chat_template\`: expected a string, got ${shown(template)}`);
}

/**
 * Parses the fields of a body that determine its prompt.
 *
 * @throws {@link BodyError} `E_ARGUMENT` for a `chat_template` in `chat_template_kwargs` that is not a string.
 * @throws ArgumentError `E_ARGUMENT` for message content that is not text, and for `continue_final_message` without `add_generation_prompt:
 *   false`.
 */
export function toPromptRequest(body: ChatFields): PromptRequest {
  const { chat_template: _template, ...kwargs } = body.chat_template_kwargs ?? {};
  const continuesFinalMessage = body.continue_final_message === true;
  // If a body sets both to true, `checkRawBody` has rejected it; here `add_generation_prompt` is absent.
  if (continuesFinalMessage && body.add_generation_prompt !== false)
    throw new ArgumentError("`continue_final_message` needs `add_generation_prompt: false`; its default is true");
  const fieldVariables = given({ documents: body.documents, reasoning_effort: body.reasoning_effort });
  return {
    messages: body.messages.map(toTemplateMessage),
    tools: body.tools?.length ? body.tools : null,
    addGenerationPrompt: body.add_generation_prompt ?? true,
    continuesFinalMessage,
    addsSpecialTokens: body.add_special_tokens === true,
    variables: { ...kwargs, ...fieldVariables, ...(continuesFinalMessage ? { continue_final_message: true } : {}) },
    templateKwargs: Object.keys(kwargs),
    template: templateOf(body),
  };
}

/** Returns the text of the last message. */
export function finalText({ messages }: Pick<PromptRequest, "messages">): string {
  // `toTemplateMessage` has converted the content of each message to one string.
  const { content } = last(messages);
  return typeof content === "string" ? content : "";
}

/** Returns the text of the last message if `echo` is set and the response continues in its role; an empty string otherwise. */
export function echoedText(request: Pick<PromptRequest, "messages" | "addGenerationPrompt"> & { readonly echo: boolean }): string {
  return request.echo && last(request.messages).role === responseRole(request) ? finalText(request) : "";
}

/** Returns the role of the response: the role of the last message if the prompt opens no new turn. */
export function responseRole({ messages, addGenerationPrompt }: Pick<PromptRequest, "messages" | "addGenerationPrompt">): string {
  return addGenerationPrompt ? "assistant" : last(messages).role;
}
