/**
 * Lexer of templates. It has the settings that chat templates are written for: `trim_blocks` removes the line end after a block, and
 * `lstrip_blocks` the white space before a block at the start of a line.
 *
 * @source Jinja 3.1, "Template Designer Documentation": white space control, literals, operators.
 */

import { TemplateSyntaxFailure } from "./errors.ts";
import { MAX_DIGITS } from "./numbers.ts";
import { isAllSpace, strip, WHITE_SPACE } from "./text.ts";
import { float, int, type TemplateValue } from "./values.ts";

/** Kind of a token. `data` is text outside of tags, `text` a string literal, `print` is `{{ … }}`, `block` is `{% … %}`. */
export type TokenKind =
  | "data"
  | "begin-print"
  | "end-print"
  | "begin-block"
  | "end-block"
  | "name"
  | "text"
  | "number"
  | "end"
  | "operator";

/** Token of a template. */
export interface Token {
  readonly kind: TokenKind;
  /** Source of a name, operator or literal, text of `data`; empty for the beginning and end of a tag. */
  readonly text: string;
  /** Value of a literal; null for other tokens. */
  readonly value: TemplateValue;
  /** Line of the source, from 1. */
  readonly line: number;
}

// Patterns with the flag `y` are matched at the current position, patterns with the flag `g` are searched for from there.
const SPACE = `[${WHITE_SPACE}]`;
const SPACES_IN_TAG = new RegExp(`${SPACE}+`, "y");
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{L}\p{N}\p{M}\p{Pc}]+/uy;
const TEXT = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/sy;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
const RAW = new RegExp(`\\{%[-+]?${SPACE}*raw${SPACE}*(?:-%\\}${SPACE}*|%\\})`, "y");
/** Group: mark after `{%`, which says how much white space before the tag is removed. */
const END_RAW = new RegExp(`\\{%([-+]?)${SPACE}*endraw${SPACE}*(?:\\+%\\}|-%\\}${SPACE}*|%\\}\\n?)`, "g");
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}${SPACE}*|%\\}\\n?`, "y");
const PRINT_END = new RegExp(`-\\}\\}${SPACE}*|\\}\\}`, "y");
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}${SPACE}*|#\\}\\n?`, "g");
/** Escape in a string literal. Groups: two, four or eight hexadecimal digits, octal digits, another character. */
const ESCAPE = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|(.))/gs;
/** Texts of the escapes of one character; a backslash before a line end removes it. */
const ESCAPES: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
/** Closing bracket of each opening bracket. */
const CLOSING: Readonly<Record<string, string>> = { "{": "}", "(": ")", "[": "]" };

/**
 * Cuts a template into tokens.
 *
 * @throws TemplateSyntaxFailure naming the line.
 */
export function tokenize(template: string): Token[] {
  return new Lexer(template).run();
}

/** Cuts one template into tokens. */
class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #position = 0;
  #line = 1;
  /** Whether the current position is at the start of a line. */
  #startsLine = true;

  constructor(template: string) {
    const source = template.replaceAll(/\r\n|\r/g, "\n");
    this.#source = source.endsWith("\n") ? source.slice(0, -1) : source;
  }

  run(): Token[] {
    while (this.#position < this.#source.length) this.#readTextAndTag();
    this.#push("end", "");
    return this.#tokens;
  }

  #push(kind: TokenKind, text: string, value: TemplateValue = null): void {
    this.#tokens.push({ kind, text, value, line: this.#line });
  }

  #fail(message: string): never {
    throw new TemplateSyntaxFailure(message, this.#line);
  }

  /** Moves the current position, and counts the lines that it passes. */
  #advance(length: number): void {
    const passed = this.#source.slice(this.#position, this.#position + length);
    this.#line += passed.split("\n").length - 1;
    this.#startsLine = passed.endsWith("\n");
    this.#position += length;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#position;
    return pattern.exec(this.#source)?.[0];
  }

  /** Reads the text up to the next tag, and the tag. */
  #readTextAndTag(): void {
    const source = this.#source;
    let tagStart = source.indexOf("{", this.#position);
    while (tagStart >= 0 && !/[{%#]/.test(source.charAt(tagStart + 1))) tagStart = source.indexOf("{", tagStart + 1);
    if (tagStart < 0) {
      this.#push("data", source.slice(this.#position));
      this.#position = source.length;
      return;
    }
    const tagCharacter = source.charAt(tagStart + 1);
    const mark = source.charAt(tagStart + 2);
    this.#pushData(source.slice(this.#position, tagStart), mark, tagCharacter !== "{");
    this.#advance(tagStart - this.#position);
    if (tagCharacter === "%") {
      const raw = this.#match(RAW);
      if (raw !== undefined) return this.#readRawBlock(raw.length);
    }
    this.#advance(mark === "-" || mark === "+" ? 3 : 2);
    if (tagCharacter === "#") this.#skipComment();
    else if (tagCharacter === "%") this.#readTag("begin-block", "end-block", BLOCK_END);
    else this.#readTag("begin-print", "end-print", PRINT_END);
  }

  /**
   * Adds the text before a tag, without the white space that the tag removes.
   *
   * @param mark - First character inside of the tag: `-` removes all white space, `+` none.
   * @param isBlock - Whether the tag is a block or comment, which removes the white space before it at the start of a line.
   */
  #pushData(text: string, mark: string, isBlock: boolean): void {
    let data = text;
    if (mark === "-") data = strip(text, "right");
    else if (mark !== "+" && isBlock) {
      const lineStart = text.lastIndexOf("\n") + 1;
      const hasLineStart = lineStart > 0 || this.#startsLine;
      if (hasLineStart && isAllSpace(text.slice(lineStart))) data = text.slice(0, lineStart);
    }
    if (data !== "") this.#push("data", data);
  }

  /** Skips a comment, from the position after its `{#`. */
  #skipComment(): void {
    // Like Python's Jinja, accepts a comment or raw block that begins at the very end of the template.
    if (this.#position >= this.#source.length) return;
    COMMENT_END.lastIndex = this.#position;
    const closing = COMMENT_END.exec(this.#source) ?? this.#fail("Missing end of comment tag");
    this.#advance(closing.index + closing[0].length - this.#position);
  }

  /** Reads a raw block, in which tags are text, from its opening tag of `openingLength` characters to its closing tag. */
  #readRawBlock(openingLength: number): void {
    this.#advance(openingLength);
    if (this.#position >= this.#source.length) return;
    END_RAW.lastIndex = this.#position;
    const closing = END_RAW.exec(this.#source) ?? this.#fail("Missing end of raw directive");
    this.#pushData(this.#source.slice(this.#position, closing.index), closing[1] ?? "", true);
    this.#advance(closing.index + closing[0].length - this.#position);
  }

  /** Reads the tokens of `{% … %}` or `{{ … }}` from the position after its opening. A closing inside of brackets is not the end of the tag. */
  #readTag(beginKind: TokenKind, endKind: TokenKind, closing: RegExp): void {
    const expectedBrackets: string[] = [];
    this.#push(beginKind, "");
    while (this.#position < this.#source.length) {
      const closed = expectedBrackets.length === 0 ? this.#match(closing) : undefined;
      if (closed !== undefined) {
        this.#push(endKind, "");
        this.#advance(closed.length);
        return;
      }
      const space = this.#match(SPACES_IN_TAG);
      if (space === undefined) this.#readToken(expectedBrackets);
      else this.#advance(space.length);
    }
    // Without a closing, the parser reports the unexpected end.
  }

  /**
   * Reads one token inside of a tag.
   *
   * @param expectedBrackets - Closing brackets of the open brackets, innermost last. Updated for a bracket.
   */
  #readToken(expectedBrackets: string[]): void {
    const real = this.#match(FLOAT);
    if (real !== undefined) return this.#pushLiteral("number", real, float(Number(real.replaceAll("_", ""))));
    const integer = this.#match(INTEGER);
    if (integer !== undefined) {
      if (integer.length > MAX_DIGITS) this.#fail(`an integer of more than ${MAX_DIGITS} digits`);
      return this.#pushLiteral("number", integer, int(BigInt(integer.replaceAll("_", ""))));
    }
    const name = this.#match(NAME);
    if (name !== undefined) {
      if (!/^[\p{ID_Start}_][\p{ID_Continue}]*$/u.test(name)) this.#fail("Invalid character in identifier");
      return this.#pushLiteral("name", name, null);
    }
    const text = this.#match(TEXT);
    if (text !== undefined) return this.#pushLiteral("text", text, this.#unescape(text.slice(1, -1)));
    const operator = this.#match(OPERATOR);
    if (operator === undefined) this.#fail(`unexpected char ${JSON.stringify(this.#source.charAt(this.#position))}`);
    const closing = CLOSING[operator];
    if (closing !== undefined) expectedBrackets.push(closing);
    else if (operator === "}" || operator === ")" || operator === "]") {
      const expected = expectedBrackets.pop();
      if (expected !== operator) this.#fail(`unexpected '${operator}'${expected === undefined ? "" : `, expected '${expected}'`}`);
    }
    this.#push("operator", operator);
    this.#advance(operator.length);
  }

  #pushLiteral(kind: TokenKind, source: string, value: TemplateValue): void {
    this.#push(kind, source, value);
    this.#advance(source.length);
  }

  /** Reads the escapes of a text as Python's `unicode-escape` does; a backslash before another character stays. */
  #unescape(text: string): string {
    if (!text.includes("\\")) return text;
    return text.replaceAll(ESCAPE, (whole, hex2?: string, hex4?: string, hex8?: string, octal?: string, other = "") => {
      const hex = hex2 ?? hex4 ?? hex8;
      if (hex !== undefined || octal !== undefined) {
        const code = hex === undefined ? Number.parseInt(octal ?? "", 8) : Number.parseInt(hex, 16);
        if (code > 0x10ffff) this.#fail("illegal Unicode character");
        if (code >= 0xd800 && code < 0xe000) this.#fail(`the surrogate ${whole} is not supported in chat templates`);
        return String.fromCodePoint(code);
      }
      if (other === "x" || other === "u" || other === "U") this.#fail(`truncated \\${other} escape`);
      if (other === "N") this.#fail("the escape \\N{…} is not supported in chat templates");
      if (other > "\x7f") this.#fail("a backslash before a character beyond ASCII is not supported in chat templates");
      return ESCAPES[other] ?? whole;
    });
  }
}
