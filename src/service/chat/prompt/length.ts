/** Limits on the length of prompt and output. */
import { ArgumentError } from "../../../base/errors.ts";
import type { GenerationDefaults } from "../../models/generation-defaults.ts";
import type { RenderedPrompt } from "./render.ts";
import type { ChatRequest } from "../request/request.ts";

/** Returns the number of tokens left for the prompt after the requested output length is subtracted. */
function roomForPrompt({ maxTokens, maxTokensField: field }: ChatRequest, contextLength: number): number {
  const asked = maxTokens ?? 0;
  if (asked > contextLength) {
    throw new ArgumentError(`This model's maximum context length is ${contextLength} tokens, and \`${field}\` alone asks for ${asked}`, {
      param: field,
    });
  }
  return contextLength - asked;
}

/**
 * Returns the number of tokens that a request truncates its prompt to; null without truncation.
 *
 * @throws ArgumentError `E_ARGUMENT` if the requested length does not fit the context together with the output, or is 0.
 */
export function truncatedLength(request: ChatRequest, contextLength: number): number | null {
  const asked = request.truncatePromptTokens;
  if (asked === null) return null;
  const room = roomForPrompt(request, contextLength);
  const count = asked === -1 ? room : asked;
  if (count > room || count === 0) {
    throw new ArgumentError(
      `Expected \`truncate_prompt_tokens\` to leave from 1 to ${room} tokens (a context length of ${contextLength} less \`${request.maxTokensField}\`), got ${asked}`,
      { param: "truncate_prompt_tokens" },
    );
  }
  return count;
}

/** Truncates a prompt to its last `count` tokens, unless that is null. The beginning is lost, including the template's. */
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
  const asked = request.maxTokens ?? 0;
  if (promptTokens > roomForPrompt(request, contextLength)) {
    const wanted = asked > 0 ? ` and \`${field}\` asks for ${asked} more; shorten the messages or \`${field}\`` : "; shorten the messages";
    throw new ArgumentError(`This model's maximum context length is ${contextLength} tokens; the messages have ${promptTokens}${wanted}`, {
      param: "input_tokens",
    });
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
