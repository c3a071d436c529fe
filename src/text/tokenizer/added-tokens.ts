/**
 * Finds added tokens such as `<|im_end|>` in a text. They are matched as literal text; only the sections between them are cut into words
 * and merged.
 *
 * @source Hugging Face `tokenizers` 0.23, `tokenizer/added_vocabulary.rs`.
 */

/** A token of `added_tokens` in `tokenizer.json`. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Whether the token is structure, not text. */
  readonly special: boolean;
  /** Whether the token is only recognized as a whole word: no word character stands directly before or after it. */
  readonly singleWord: boolean;
  /** Whether the token includes the white space before it. */
  readonly lstrip: boolean;
  /** Whether the token includes the white space after it. */
  readonly rstrip: boolean;
  /** Whether the token is recognized in the normalized text, instead of in the text as given. */
  readonly normalized: boolean;
}

/** A section of a text between added tokens, or an added token. */
export interface Section {
  /** Text of the section; for an added token its content, without the white space that it includes. */
  readonly text: string;
  /** Position of the section in the text, in UTF-16 units. */
  readonly start: number;
  /** The added token; null for a section between added tokens. */
  readonly token: AddedToken | null;
}

/** Node of a trie of token texts; children by UTF-16 unit. */
interface TrieNode {
  readonly children: Map<number, TrieNode>;
  /** Token with the text that leads to this node; null if no token has it. */
  token: AddedToken | null;
}

// `\s` and `\w` of Rust's regular expressions.
const SPACE = /\p{White_Space}/u;
const WORD_CHARACTER = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]`;
const ENDS_WITH_WORD = new RegExp(`${WORD_CHARACTER}$`, "u");
const STARTS_WITH_WORD = new RegExp(`^${WORD_CHARACTER}`, "u");

/** Finds added tokens in texts. Where several match at one position, the longest counts. */
export class AddedTokenFinder {
  readonly #root: TrieNode = { children: new Map(), token: null };

  /** @param tokens - Pairs of the text to find and its token. */
  constructor(tokens: Iterable<readonly [string, AddedToken]>) {
    for (const [text, token] of tokens) {
      if (text === "") continue;
      let node = this.#root;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        let child = node.children.get(unit);
        if (child === undefined) {
          child = { children: new Map(), token: null };
          node.children.set(unit, child);
        }
        node = child;
      }
      node.token = token;
    }
  }

  /** Divides a text into its added tokens and the sections between them. Empty sections are left out. */
  split(text: string): Section[] {
    const sections: Section[] = [];
    /** End of the last section, with the white space that its token includes. */
    let lastEnd = 0;
    const addTextUpTo = (end: number): void => {
      if (end > lastEnd) sections.push({ text: text.slice(lastEnd, end), start: lastEnd, token: null });
    };
    for (let at = 0; at < text.length;) {
      const found = this.#longest(text, at);
      if (found === null) {
        at++;
        continue;
      }
      const end = at + found.length;
      const { token } = found;
      if (!token.singleWord || isSingleWord(text, at, end)) {
        const start = token.lstrip ? Math.max(at - spacesBefore(text, at), lastEnd) : at;
        addTextUpTo(start);
        lastEnd = token.rstrip ? end + spacesAfter(text, end) : end;
        sections.push({ text: token.content, start, token });
      }
      at = end;
    }
    addTextUpTo(text.length);
    return sections;
  }

  /** Returns the longest token that begins at `start`, with the length of the matched text in UTF-16 units; null if none begins there. */
  #longest(text: string, start: number): { readonly token: AddedToken; readonly length: number } | null {
    let node = this.#root.children.get(text.charCodeAt(start));
    let longest: AddedToken | null = null;
    let length = 0;
    for (let end = start + 1; node !== undefined; end++) {
      if (node.token !== null) {
        longest = node.token;
        length = end - start;
      }
      if (end >= text.length) break;
      node = node.children.get(text.charCodeAt(end));
    }
    return longest === null ? null : { token: longest, length };
  }
}

/** Whether no word character adjoins `text[from..to)`. A character has at most two UTF-16 units. */
function isSingleWord(text: string, from: number, to: number): boolean {
  return !ENDS_WITH_WORD.test(text.slice(Math.max(0, from - 2), from)) && !STARTS_WITH_WORD.test(text.slice(to, to + 2));
}

/** Returns the number of white space characters directly before a position. */
function spacesBefore(text: string, at: number): number {
  let count = 0;
  while (count < at && SPACE.test(text.charAt(at - count - 1))) count++;
  return count;
}

/** Returns the number of white space characters from a position on. */
function spacesAfter(text: string, at: number): number {
  let count = 0;
  while (at + count < text.length && SPACE.test(text.charAt(at + count))) count++;
  return count;
}
