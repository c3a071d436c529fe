/** Limits on the length of prompt and output. */
import { ArgumentError } from "../../../base/errors.ts";
import type { GenerationDefaults } from "../../models/generation-defaults.ts";
import type { RenderedPrompt } from "./render.ts";
import type { ChatRequest } from "../request/request.ts";

/** Returns the number of tokens of the context that the requested output leaves for the prompt. @throws ArgumentError if it is negative. */
function roomForPrompt({ maxTokens, maxTokensField: field }: ChatRequest, contextLength: number): number {
  const requested = maxTokens ?? 0;
  if (requested <= contextLength) return contextLength - requested;
  const message = `This model's maximum context length is ${contextLength} tokens, and \`${field}\` alone asks for ${requested}`;
  throw new ArgumentError(message, { param: field });
}

/**
 * Returns the number of tokens that a request truncates its prompt to; null without truncation.
 *
 * @throws ArgumentError `E_ARGUMENT` if the requested length does not fit the context together with the output, or is 0.
 */
export function truncatedLength(request: ChatRequest, contextLength: number): number | null {
  const requested = request.truncatePromptTokens;
  if (requested === null) return null;
  const room = roomForPrompt(request, contextLength);
  const count = requested === -1 ? room : requested;
  if (count > room || count === 0) {
    throw new ArgumentError(
      `Expected \`truncate_prompt_tokens\` to leave from 1 to ${room} tokens (a context length of ${contextLength} less \`${request.maxTokensField}\`), got ${requested}`,
      { param: "truncate_prompt_tokens" },
    );
  }
  return count;
}

/** Returns the last `count` tokens of a prompt; the whole prompt if `count` is null. The dropped tokens include the start of the template. */
export function truncatePrompt(prompt: RenderedPrompt, count: number | null): RenderedPrompt {
  return count === null || prompt.ids.length <= count ? prompt : { ...prompt, ids: prompt.ids.slice(-count), isWhole: false };
}

/**
 * Returns the maximum number of output tokens: the request's limit, or else the default of the model's generation config, and at most the
 * number that fits the context.
 *
 * @throws ArgumentError `E_ARGUMENT` if prompt and output do not fit, or no token is left for the output.
 */
export function resolveMaxTokens(request: ChatRequest, promptTokens: number, contextLength: number, defaults: GenerationDefaults): number {
  const field = request.maxTokensField;
  const requested = request.maxTokens ?? 0;
  if (promptTokens > roomForPrompt(request, contextLength)) {
    const output = requested > 0 ? ` and \`${field}\` asks for ${requested} more` : "";
    const remedy = requested > 0 ? `shorten the messages or \`${field}\`` : "shorten the messages";
    const message = `This model's maximum context length is ${contextLength} tokens; the messages have ${promptTokens}${output}; ${remedy}`;
    throw new ArgumentError(message, { param: "input_tokens" });
  }
  const room = contextLength - promptTokens;
  const limit = Math.min(room, request.maxTokens ?? defaults.maxTokens ?? room);
  if (limit < 1) {
    throw new ArgumentError(
      `Expected \`${field}\` to be at least 1, got ${limit}: the messages have ${promptTokens} tokens of a context length of ${contextLength}`,
      { param: "max_tokens" },
    );
  }
  return limit;
}
