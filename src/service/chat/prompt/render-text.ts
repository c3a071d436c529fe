/** Rendering of a conversation to the text of a prompt, also for a response that continues the last message. */
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
  // The prompt ends at the marker. A template that trims content removes the space after the marker; then the text is trimmed, too.
  const marked = [...messages.slice(0, -1), { ...last(messages), content: `${text}${MARKER} ` }];
  const rendered = tokenizer.renderChat(marked, options);
  const markerStart = rendered.lastIndexOf(MARKER);
  const prompt = rendered.slice(0, Math.max(markerStart, 0));
  if (markerStart === -1 || !prompt.includes(strip(text))) {
    throw new ArgumentError(
      "`continue_final_message` is set, but the chat template does not show the last message as it is, so that it cannot be continued",
      { param: "continue_final_message" },
    );
  }
  const keepsSpace = rendered.startsWith(`${MARKER} `, markerStart);
  return keepsSpace ? prompt : strip(prompt, "right");
}
