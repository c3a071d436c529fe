/** Translation of the requests of `POST /tokenize` and `POST /detokenize`, which render a prompt and sample nothing. */
import { BodyError, given, isGiven, readMembers, type Members } from "../../dialects/index.ts";
import { detokenizeRequest, tokenizeRequest } from "../../base/schema/index.ts";
import { chatBody } from "./chat-members.ts";
import type { Translation } from "./dialect.ts";

/** A translated request of `POST /tokenize`. */
export interface TranslatedTokenize extends Translation {
  /** Whether the answer has the texts of the tokens. */
  readonly hasTexts: boolean;
}

/** Translates the body of `POST /tokenize`. @throws BodyError `E_ARGUMENT` for a malformed body. */
export function translateTokenize(members: Members): TranslatedTokenize {
  const { model, prompt, messages, add_special_tokens: addsSpecialTokens } = readMembers(tokenizeRequest, members);
  if (isGiven(prompt) === isGiven(messages))
    throw new BodyError("Expected either `prompt` or `messages`, got both or neither", { param: "prompt" });
  const { prompt: _prompt, return_token_strs: returnsTexts, ...body } = members;
  const hasTexts = returnsTexts === true;
  if (typeof prompt !== "string") return { bodies: [chatBody(body, { isStream: false })], hasTexts };
  const raw = { text: prompt, addsSpecialTokens: addsSpecialTokens ?? true };
  return { bodies: [chatBody(given({ model }), { isStream: false, prompt: raw })], hasTexts };
}

/** Translates the body of `POST /detokenize`: its tokens are the prompt. @throws BodyError `E_ARGUMENT` for a malformed body. */
export function translateDetokenize(members: Members): Translation {
  const { model, tokens } = readMembers(detokenizeRequest, members);
  return { bodies: [chatBody(given({ model }), { isStream: false, prompt: { ids: tokens } })] };
}
