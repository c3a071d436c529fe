import { ArgumentError } from "../../../base/errors.ts";
import { type ChatTokenizer, strip } from "../../../text/tokenizer/index.ts";
import { finalText, type PromptRequest } from "../request/prompt-request.ts";
import { last } from "../../../base/util/values.ts";

/** Marker for the end of the last message; private-use characters, which conversations do not contain. */
const MARKER = "\u{F0000}continue\u{F0001}";

/**
 * Renders a conversation with its template. With `continue_final_message` the text ends exactly with the text of the last message: no end
 * of turn, no header.
 *
 * @throws ArgumentError `E_ARGUMENT` if the template rejects the conversation, or changes the text of the message to be continued.
 * @throws DataError `E_DATA` if the request's own template does not parse.
 */
export function renderText(tokenizer: ChatTokenizer, request: PromptRequest): string {
  const { messages, tools, addGenerationPrompt, variables } = request;
  const options = { tools, addGenerationPrompt, variables, template: request.template ?? undefined };
  if (!request.continuesFinalMessage) return tokenizer.renderChat(messages, options);

  const text = finalText(request);
  // The space after the marker shows whether the template trims.
  const marked = [...messages.slice(0, -1), { ...last(messages), content: `${text}${MARKER} ` }];
  const rendered = tokenizer.renderChat(marked, options);
  const end = rendered.lastIndexOf(MARKER);
  const beginning = rendered.slice(0, Math.max(end, 0));
  if (end === -1 || !beginning.includes(strip(text))) {
    throw new ArgumentError(
      "`continue_final_message` is set, but the chat template does not show the last message as it is, so that it cannot be continued",
      { param: "continue_final_message" },
    );
  }
  return rendered.startsWith(`${MARKER} `, end) ? beginning : strip(beginning, "right");
}
