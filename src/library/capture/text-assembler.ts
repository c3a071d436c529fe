/** Assembly of a streamed text completion. */
import { z } from "zod";
import { ProtocolError } from "../client/index.ts";
import type { AnswerAssembler } from "./answer-assembler.ts";

const tokenIds = z.array(z.int()).nullish();

/** Schema of a chunk; the last chunk of a choice has a `finish_reason`. */
const chunk = z.looseObject({
  id: z.string(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      text: z.string(),
      finish_reason: z.string().nullish(),
      stop_reason: z.union([z.number(), z.string()]).nullish(),
      prompt_token_ids: tokenIds,
      token_ids: tokenIds,
      logprobs: z.looseObject({ tokens: z.array(z.string()), token_logprobs: z.array(z.number().nullable()) }).nullish(),
    }),
  ),
});

/** Choice assembled so far. Members that no chunk has had are null. */
interface PartialChoice {
  readonly index: number;
  text: string;
  finish_reason: string | null;
  stop_reason: number | string | null;
  prompt_token_ids: number[] | null;
  token_ids: number[] | null;
  logprobs: { readonly tokens: string[]; readonly token_logprobs: (number | null)[] } | null;
}

/** Assembler of one text completion. */
export class TextAssembler implements AnswerAssembler {
  readonly #choiceCount: number;
  /** Choices by their index. */
  readonly #choices = new Map<number, PartialChoice>();
  /** Members of the answer that every chunk repeats; null before the first chunk. */
  #head: { readonly id: string; readonly model: string } | null = null;

  /** @param choiceCount - Number of choices of all prompts together. */
  constructor(choiceCount: number) {
    this.#choiceCount = choiceCount;
  }

  get isComplete(): boolean {
    return this.#choices.size >= this.#choiceCount && [...this.#choices.values()].every((choice) => choice.finish_reason !== null);
  }

  push(value: unknown): void {
    const { success, data, error } = chunk.safeParse(value);
    if (!success) throw new ProtocolError(`Expected a chunk of a text completion: ${z.prettifyError(error)}`);
    const { id, model, choices } = data;
    this.#head ??= { id, model };
    for (const part of choices) {
      const choice = this.#choice(part.index);
      choice.text += part.text;
      choice.finish_reason = part.finish_reason ?? choice.finish_reason;
      choice.stop_reason = part.stop_reason ?? choice.stop_reason;
      choice.prompt_token_ids ??= part.prompt_token_ids ?? null;
      if (part.token_ids) (choice.token_ids ??= []).push(...part.token_ids);
      if (part.logprobs) {
        choice.logprobs ??= { tokens: [], token_logprobs: [] };
        choice.logprobs.tokens.push(...part.logprobs.tokens);
        choice.logprobs.token_logprobs.push(...part.logprobs.token_logprobs);
      }
    }
  }

  /** Returns the choice at `index`, which is added if it is new. */
  #choice(index: number): PartialChoice {
    const known = this.#choices.get(index);
    if (known !== undefined) return known;
    const absent = { finish_reason: null, stop_reason: null, prompt_token_ids: null, token_ids: null, logprobs: null };
    const added: PartialChoice = { index, text: "", ...absent };
    this.#choices.set(index, added);
    return added;
  }

  toAnswer(): unknown {
    if (this.#head === null || this.#choices.size === 0) return null;
    return { ...this.#head, choices: [...this.#choices.values()].toSorted((a, b) => a.index - b.index) };
  }
}
