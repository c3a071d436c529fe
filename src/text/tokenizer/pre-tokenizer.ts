/**
 * Pre-tokenizers: they cut a text into words, within which a BPE model merges.
 *
 * @source Hugging Face `tokenizers` 0.23, `pre_tokenizers/` and `tokenizer/normalizer.rs`. The npm library translates the regular
 *   expressions; its own splitting ignores most of the `behavior`s.
 */
import { z } from "zod";
import { UnsupportedError } from "../../base/errors.ts";
import { component, type Component, componentSettings } from "./files.ts";
import { translateRegex } from "./library.ts";
import { asMatched } from "./unicode.ts";

/**
 * Cuts a text into words. `start` is the position of the text in the whole text; only whether it is 0 matters (`prepend_scheme: first`).
 */
export type PreTokenizer = (text: string, start: number) => readonly string[];

/** Words of the pre-tokenizer `ByteLevel` (GPT-2). */
const BYTE_LEVEL_WORDS = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;
const SPACE = " ";

// Schemas of the settings of pre-tokenizers, with the names of `tokenizer.json`.

/**
 * Treatment of the matches of a pattern: dropped, words of their own, joined to the word before or after, or joined to adjacent matches.
 */
const behavior = z.enum(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]);
type Behavior = z.infer<typeof behavior>;
const pattern = z.union([z.object({ Regex: z.string() }), z.object({ String: z.string() })]);
const sequence = z.object({ pretokenizers: z.array(component) });
const split = z.object({ pattern, behavior, invert: z.boolean().default(false) });
const byteLevel = z.object({ add_prefix_space: z.boolean().default(true), use_regex: z.boolean().default(true) });
const digits = z.object({ individual_digits: z.boolean().default(false) });
const punctuation = z.object({ behavior: behavior.default("Isolated") });
const metaspace = z.object({
  replacement: z.string(),
  prepend_scheme: z.enum(["always", "first", "never"]).default("always"),
  split: z.boolean().default(true),
});

/** Regular expression, or literal text. */
type Pattern = z.infer<typeof pattern>;

/**
 * Compiles a pre-tokenizer; null means that a text is one word. `ByteLevel` only cuts words here: the model maps their bytes to tokens.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the part that is not supported.
 */
export function compilePreTokenizer(part: Component | null): PreTokenizer {
  if (part === null) return (text) => [text];
  switch (part.type) {
    case "Sequence": {
      const { pretokenizers } = componentSettings("pre-tokenizer", sequence, part);
      return inSequence(pretokenizers.map(compilePreTokenizer));
    }
    case "Split": {
      const settings = componentSettings("pre-tokenizer", split, part);
      return splitting(settings.pattern, settings.behavior, { isInverted: settings.invert });
    }
    case "Digits": {
      const { individual_digits: isSingle } = componentSettings("pre-tokenizer", digits, part);
      return splitting({ Regex: isSingle ? String.raw`\p{N}` : String.raw`\p{N}+` }, "Isolated");
    }
    case "Punctuation":
      return splitting({ Regex: String.raw`[\p{P}!-/:-@\[-\x60{-~]` }, componentSettings("pre-tokenizer", punctuation, part).behavior);
    case "Whitespace":
      return splitting({ Regex: String.raw`\w+|[^\w\s]+` }, "Removed", { isInverted: true });
    case "WhitespaceSplit":
      return splitting({ Regex: String.raw`\s` }, "Removed");
    case "ByteLevel":
      return byteLevelWords(componentSettings("pre-tokenizer", byteLevel, part));
    case "Metaspace":
      return spaceMarks(componentSettings("pre-tokenizer", metaspace, part));
    default:
      throw new UnsupportedError(`tokenizer.json: the pre-tokenizer \`${part.type}\` is not supported.`);
  }
}

/** Applies each part to the words of the part before it. Positions count in the words that the first part returns. */
function inSequence(parts: readonly PreTokenizer[]): PreTokenizer {
  return (text, start) => {
    let words: readonly string[] = [text];
    for (const [index, part] of parts.entries()) {
      if (index === 0) {
        words = part(text, start);
        continue;
      }
      let wordStart = start;
      words = words.flatMap((word) => {
        const smallerWords = part(word, wordStart);
        wordStart += word.length;
        return smallerWords;
      });
    }
    return words;
  };
}

/** Puts a space in front of a text without one if `add_prefix_space` is set, and cuts words as GPT-2 does if `use_regex` is set. */
function byteLevelWords({ add_prefix_space: addsSpace, use_regex: usesRegex }: z.infer<typeof byteLevel>): PreTokenizer {
  const cut = usesRegex ? splitting({ Regex: BYTE_LEVEL_WORDS }, "Isolated") : (text: string) => [text];
  return (text, start) => cut(addsSpace && !text.startsWith(SPACE) ? SPACE + text : text, start);
}

/** Replaces spaces by a mark (`▁`), puts one in front as the scheme says, and cuts before each mark if `split` is set. */
function spaceMarks({ replacement, prepend_scheme: scheme, split: isSplit }: z.infer<typeof metaspace>): PreTokenizer {
  const cut = isSplit ? splitting({ String: replacement }, "MergedWithNext") : (text: string) => [text];
  return (text, start) => {
    const marked = text.replaceAll(SPACE, replacement);
    const isPrefixed = !marked.startsWith(replacement) && (scheme === "always" || (scheme === "first" && start === 0));
    return cut(isPrefixed ? replacement + marked : marked, start);
  };
}

/** Returns the regular expression of a pattern. */
function patternRegex(source: Pattern): RegExp {
  if ("String" in source) return new RegExp(source.String.replaceAll(/[\\^$.*+?()[\]{}|/-]/gu, String.raw`\$&`), "gu");
  try {
    return translateRegex(source.Regex);
  } catch (error) {
    throw new UnsupportedError(
      `tokenizer.json: the regular expression ${JSON.stringify(source.Regex.slice(0, 100))} is not supported: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** Returns a pre-tokenizer that cuts at the matches of a pattern; if inverted, at the text between them. */
function splitting(source: Pattern, matchBehavior: Behavior, { isInverted = false }: { readonly isInverted?: boolean } = {}): PreTokenizer {
  const regex = patternRegex(source);
  // By far the most frequent case, so it has a function of its own. Inversion changes nothing: all stretches become words.
  if (matchBehavior === "Isolated") return (text) => isolated(text, regex);
  return (text) => grouped(stretches(text, regex, isInverted), matchBehavior).map(({ start, end }) => text.slice(start, end));
}

/** Cuts a text into its matches and the stretches between them. */
function isolated(text: string, regex: RegExp): string[] {
  const words: string[] = [];
  let lastEnd = 0;
  for (const { 0: match, index } of asMatched(text).matchAll(regex)) {
    if (index > lastEnd) words.push(text.slice(lastEnd, index));
    lastEnd = index + match.length;
    if (match !== "") words.push(text.slice(index, lastEnd));
  }
  if (lastEnd < text.length) words.push(text.slice(lastEnd));
  return words;
}

/** A match of a pattern, or the text between two matches. If the pattern is inverted, `isMatch` is exchanged. */
interface Stretch {
  start: number;
  end: number;
  readonly isMatch: boolean;
}

/** Returns the matches of a text and the stretches between them, in order. */
function stretches(text: string, regex: RegExp, isInverted: boolean): Stretch[] {
  const found: Stretch[] = [];
  let lastEnd = 0;
  for (const { 0: match, index } of asMatched(text).matchAll(regex)) {
    if (index > lastEnd) found.push({ start: lastEnd, end: index, isMatch: isInverted });
    found.push({ start: index, end: index + match.length, isMatch: !isInverted });
    lastEnd = index + match.length;
  }
  if (lastEnd < text.length) found.push({ start: lastEnd, end: text.length, isMatch: isInverted });
  return found;
}

/** Returns the words that the stretches of a text become. Empty words are left out. */
function grouped(all: readonly Stretch[], matchBehavior: Exclude<Behavior, "Isolated">): Stretch[] {
  let words: Stretch[];
  if (matchBehavior === "Removed") words = all.filter(({ isMatch }) => !isMatch);
  else words = matchBehavior === "MergedWithNext" ? mergedWithNext(all) : merged(all, matchBehavior);
  return words.filter(({ start, end }) => end > start);
}

/** Joins each match to the stretch before it, unless that is a match; with `Contiguous`, joins adjacent matches to each other. */
function merged(all: readonly Stretch[], matchBehavior: "MergedWithPrevious" | "Contiguous"): Stretch[] {
  const words: Stretch[] = [];
  let wasMatch = false;
  for (const stretch of all) {
    const previous = words.at(-1);
    const isJoined = matchBehavior === "Contiguous" ? stretch.isMatch === wasMatch : stretch.isMatch && !wasMatch;
    if (isJoined && previous !== undefined) previous.end = stretch.end;
    else words.push({ ...stretch });
    wasMatch = stretch.isMatch;
  }
  return words;
}

/** Joins each match to the stretch after it, unless that is a match. */
function mergedWithNext(all: readonly Stretch[]): Stretch[] {
  const words: Stretch[] = [];
  let wasMatch = false;
  for (const stretch of all.toReversed()) {
    const following = words.at(-1);
    if (stretch.isMatch && !wasMatch && following !== undefined) following.start = stretch.start;
    else words.push({ ...stretch });
    wasMatch = stretch.isMatch;
  }
  return words.toReversed();
}
