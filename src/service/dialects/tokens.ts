/** The routes `POST /tokenize` and `POST /detokenize`. */
import { BodyError, given, isGiven, readMembers, type Members } from "../../dialects/index.ts";
import { detokenizeRequest, tokenizeRequest } from "../../schema/index.ts";
import { chatBytes } from "./chat-bytes.ts";
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
  const { prompt: _, return_token_strs: texts, ...body } = members;
  const hasTexts = texts === true;
  if (typeof prompt !== "string") return { calls: [{ body: chatBytes(body, false) }], hasTexts };
  const raw = { text: prompt, addsSpecialTokens: addsSpecialTokens ?? true };
  return { calls: [{ body: chatBytes(given({ model }), false), prompt: raw }], hasTexts };
}

/** Translates the body of `POST /detokenize`. @throws BodyError `E_ARGUMENT` for a malformed body. */
export function translateDetokenize(members: Members): Translation {
  const { model, tokens } = readMembers(detokenizeRequest, members);
  return { calls: [{ body: chatBytes(given({ model }), false), prompt: { ids: tokens } }] };
}
