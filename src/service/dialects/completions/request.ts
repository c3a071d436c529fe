/** Translation of a text completion to chat completions, one per prompt. */
import { FIELD_ROWS } from "../../../schema/chat-fields.ts";
import { completionsRequest, type CompletionsRequest } from "../../../schema/index.ts";
import type { RawPrompt } from "../../chat/prompt/raw-prompt.ts";
import { BodyError } from "../../chat/request/errors.ts";
import { isDefault } from "../../chat/request/fields.ts";
import type { Members, Translation } from "../dialect.ts";
import { chatBytes, readMembers, rejectFields, unsupported, without } from "../translate.ts";

/** Default of `max_tokens`, as in other servers with this interface. */
const DEFAULT_MAX_TOKENS = 16;

/** Max number of prompts in one request. */
const MAX_PROMPTS = 1024;

/** Fields with another meaning than in chat completions; every other field passes unchanged. */
const OWN_FIELDS = new Set([
  "prompt",
  "add_special_tokens",
  "echo",
  "logprobs",
  "max_tokens",
  "stream",
  "stream_options",
  "best_of",
  "suffix",
]);

/** Fields that act on messages. */
const MESSAGE_FIELDS = FIELD_ROWS.filter(
  ([name, { changes }]) => (changes === "prompt" && name !== "add_special_tokens") || name === "tool_choice",
).map(([name]) => name);

/** Rejects the fields of chat completions that act on messages, for a prompt that has none. */
export function rejectMessageFields(members: Members): void {
  for (const name of MESSAGE_FIELDS)
    if (!isDefault(name, members[name]))
      throw unsupported(name, members[name], "This route has no messages; leave the field out, or use /v1/chat/completions");
}

function promptsOf({ prompt, add_special_tokens: addsSpecialTokens }: CompletionsRequest): RawPrompt[] {
  const list: readonly unknown[] = typeof prompt === "string" ? [prompt] : prompt;
  const prompts = typeof list[0] === "number" ? [list] : list;
  if (prompts.length > MAX_PROMPTS)
    throw new BodyError(`Expected \`prompt\` to have at most ${MAX_PROMPTS} prompts, got ${prompts.length}`, { param: "prompt" });
  return prompts.map((each) =>
    typeof each === "string" ? { text: each, addsSpecialTokens: addsSpecialTokens ?? true } : { ids: each as readonly number[] },
  );
}

/** A translated text completion. */
export interface TranslatedCompletion extends Translation {
  /** The body; its prompt is in the calls alone. */
  readonly request: CompletionsRequest;
  /** Whether no token is to be returned: `max_tokens` is 0. One token is sampled and left out. */
  readonly isEchoAlone: boolean;
}

/**
 * Translates the body of `POST /v1/completions`.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` for `best_of`, `suffix` and fields on messages.
 */
export function translateCompletions(members: Members): TranslatedCompletion {
  rejectFields(members, { best_of: [1, members["n"] ?? 1], suffix: [""] });
  rejectMessageFields(members);
  const request = readMembers(completionsRequest, members);
  const { echo, logprobs, stream, max_tokens: maxTokens } = request;
  if ((request.stream_options as Members | null | undefined)?.["continuous_usage_stats"] === true)
    throw unsupported("stream_options.continuous_usage_stats", true, "The last chunk has the token counts");
  const isEchoAlone = maxTokens === 0;
  if (isEchoAlone && echo !== true)
    throw new BodyError("Expected `max_tokens` to be at least 1 without `echo`, got 0", { param: "max_tokens" });
  const hasLogprobs = logprobs !== undefined && logprobs !== null;
  if (hasLogprobs && echo === true && stream === true)
    throw unsupported(
      "stream",
      true,
      "The log-probabilities of an echoed prompt are not available in a stream; leave out one of the three",
    );
  const body = {
    ...without(members, OWN_FIELDS),
    max_tokens: isEchoAlone ? 1 : (maxTokens ?? DEFAULT_MAX_TOKENS),
    ...(hasLogprobs ? { logprobs: true, top_logprobs: logprobs, ...(echo === true ? { prompt_logprobs: logprobs } : {}) } : {}),
  };
  const calls = promptsOf(request).map((prompt) => ({ body: chatBytes(body, stream === true), prompt }));
  return { request: { ...request, prompt: "" }, isEchoAlone, calls };
}
