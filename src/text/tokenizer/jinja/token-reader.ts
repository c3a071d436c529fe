/** Cursor over the tokens of a template; base of the parsers in `expression-parser.ts` and `parser.ts`. */

import { TemplateSyntaxFailure } from "./errors.ts";
import type { Token, TokenKind } from "./lexer.ts";

/** Reads tokens one after another; base class of the parsers. */
export class TokenReader {
  readonly #tokens: readonly Token[];
  #position = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  /** Current token; the token `end` after the last one. */
  protected get token(): Token {
    return this.#tokens[this.#position] as Token;
  }

  /** Returns the current token and moves to the next one; stays at the end. */
  protected next(): Token {
    const { token } = this;
    if (token.kind !== "end") this.#position++;
    return token;
  }

  /** @throws TemplateSyntaxFailure always, with the line of the current token. */
  protected fail(message: string): never {
    throw new TemplateSyntaxFailure(message, this.token.line);
  }

  /** Whether the current token, or the token `ahead` tokens after it, is this name or operator. */
  protected is(kind: "name" | "operator", text: string, ahead = 0): boolean {
    const token = this.#tokens[this.#position + ahead];
    return token?.kind === kind && token.text === text;
  }

  /** Moves past the current token if it is this name or operator, and returns whether it is. */
  protected skip(kind: "name" | "operator", text: string): boolean {
    if (!this.is(kind, text)) return false;
    this.next();
    return true;
  }

  /** Returns the current token, which must be of this kind and text, and moves to the next one. */
  protected expect(kind: TokenKind, text?: string): Token {
    const { token } = this;
    if (token.kind !== kind || (text !== undefined && token.text !== text))
      this.fail(`expected ${describeToken(kind, text)}, got ${describeToken(token.kind, token.text)}`);
    return this.next();
  }
}

const TOKEN_NAMES: Partial<Readonly<Record<TokenKind, string>>> = {
  end: "the end of the template",
  "end-print": "the end of a print statement",
  "end-block": "the end of a statement block",
  "begin-print": "text of the template",
  "begin-block": "text of the template",
  data: "text of the template",
};

/** Returns the name of a token for messages. */
export function describeToken(kind: TokenKind, text?: string): string {
  return TOKEN_NAMES[kind] ?? (text === undefined ? `a ${kind}` : `'${text}'`);
}
