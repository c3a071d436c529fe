/** Tokens that a post-processor adds around a text, such as a BOS. */
import { z } from "zod";
import { UnsupportedError } from "../../base/errors.ts";
import { component, type Component, componentSettings } from "./files.ts";

/** Tokens around a text, in order. */
export interface AddedAround {
  readonly before: readonly string[];
  readonly after: readonly string[];
}

const NO_TOKENS: AddedAround = { before: [], after: [] };
/**
 * Settings of `TemplateProcessing`. Of them only `single` is used, the template for one text: special tokens around the text (`Sequence`).
 */
const template = z.object({
  single: z
    .array(z.union([z.object({ SpecialToken: z.object({ id: z.string() }) }), z.object({ Sequence: z.object({ id: z.string() }) })]))
    .refine((items) => items.filter((item) => "Sequence" in item).length === 1, "expected the text (`Sequence`) exactly once"),
});
/** A token's text and id. */
const textAndId = z.tuple([z.string(), z.int()]);
const roberta = z.object({ cls: textAndId, sep: textAndId });

/**
 * Returns the tokens that a post-processor adds around one text.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a post-processor that is not supported.
 */
export function addedAround(part: Component | null): AddedAround {
  if (part === null) return NO_TOKENS;
  switch (part.type) {
    case "ByteLevel":
      return NO_TOKENS;
    case "Sequence": {
      const parts = componentSettings("post-processor", z.object({ processors: z.array(component) }), part).processors.map(addedAround);
      // Each processor adds its tokens around the result of the processors before it.
      return parts.reduce(
        (inner, outer) => ({
          before: [...outer.before, ...inner.before],
          after: [...inner.after, ...outer.after],
        }),
        NO_TOKENS,
      );
    }
    case "TemplateProcessing": {
      const { single } = componentSettings("post-processor", template, part);
      const textAt = single.findIndex((item) => "Sequence" in item);
      const tokens = (items: typeof single): string[] => items.flatMap((item) => ("SpecialToken" in item ? [item.SpecialToken.id] : []));
      return { before: tokens(single.slice(0, textAt)), after: tokens(single.slice(textAt + 1)) };
    }
    case "BertProcessing":
    case "RobertaProcessing": {
      const { cls, sep } = componentSettings("post-processor", roberta, part);
      return { before: [cls[0]], after: [sep[0]] };
    }
    default:
      throw new UnsupportedError(`tokenizer.json: the post-processor \`${part.type}\` is not supported.`);
  }
}
