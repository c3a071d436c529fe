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

/** Kind of a token. `data` is text outside of tags, `text` a string literal, `end` the end of the template. */
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

// Patterns with the flag `y` are matched at the current position.
const SPACE = `[${WHITE_SPACE}]`;
const SKIPPED = new RegExp(`${SPACE}+`, "y");
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{L}\p{N}\p{M}\p{Pc}]+/uy;
const TEXT = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/sy;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
const RAW = new RegExp(`\\{%[-+]?${SPACE}*raw${SPACE}*(?:-%\\}${SPACE}*|%\\})`, "y");
const END_RAW = new RegExp(`\\{%([-+]?)${SPACE}*endraw${SPACE}*(?:\\+%\\}|-%\\}${SPACE}*|%\\}\\n?)`, "g");
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}${SPACE}*|%\\}\\n?`, "y");
const PRINT_END = new RegExp(`-\\}\\}${SPACE}*|\\}\\}`, "y");
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}${SPACE}*|#\\}\\n?`, "g");
const ESCAPE = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|(.))/gs;
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
  #at = 0;
  #line = 1;
  /** Whether the current position is at the start of a line. */
  #startsLine = true;

  constructor(template: string) {
    const source = template.replaceAll(/\r\n|\r/g, "\n");
    this.#source = source.endsWith("\n") ? source.slice(0, -1) : source;
  }

  run(): Token[] {
    while (this.#at < this.#source.length) this.#piece();
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
    const passed = this.#source.slice(this.#at, this.#at + length);
    this.#line += passed.split("\n").length - 1;
    this.#startsLine = passed.endsWith("\n");
    this.#at += length;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#source)?.[0];
  }

  /** Reads text up to the next tag, and the tag. */
  #piece(): void {
    const source = this.#source;
    let open = source.indexOf("{", this.#at);
    while (open >= 0 && !"{%#".includes(source.charAt(open + 1) || " ")) open = source.indexOf("{", open + 1);
    if (open < 0) {
      this.#push("data", source.slice(this.#at));
      this.#at = source.length;
      return;
    }
    const kind = source.charAt(open + 1);
    const mark = source.charAt(open + 2);
    this.#data(source.slice(this.#at, open), mark, kind !== "{");
    this.#advance(open - this.#at);
    if (kind === "%") {
      const raw = this.#match(RAW);
      if (raw !== undefined) return this.#raw(raw.length);
    }
    this.#advance(mark === "-" || mark === "+" ? 3 : 2);
    if (kind === "#") this.#comment();
    else if (kind === "%") this.#tag("begin-block", "end-block", BLOCK_END);
    else this.#tag("begin-print", "end-print", PRINT_END);
  }

  /**
   * Adds the text before a tag, without the white space that the tag removes.
   *
   * @param mark - First character inside of the tag: `-` removes all white space, `+` none.
   * @param isBlock - Whether the tag is a block or comment, which removes the white space before it at the start of a line.
   */
  #data(text: string, mark: string, isBlock: boolean): void {
    let data = text;
    if (mark === "-") data = strip(text, "right");
    else if (mark !== "+" && isBlock) {
      const lineStart = text.lastIndexOf("\n") + 1;
      if ((lineStart > 0 || this.#startsLine) && isAllSpace(text.slice(lineStart))) data = text.slice(0, lineStart);
    }
    if (data !== "") this.#push("data", data);
  }

  /** Skips the rest of a comment. */
  #comment(): void {
    // Like Python's Jinja, accepts a comment or raw block that begins at the very end of the template.
    if (this.#at >= this.#source.length) return;
    COMMENT_END.lastIndex = this.#at;
    const end = COMMENT_END.exec(this.#source) ?? this.#fail("Missing end of comment tag");
    this.#advance(end.index + end[0].length - this.#at);
  }

  /** Reads a raw block, in which tags are text; `length` is the length of its opening tag. */
  #raw(length: number): void {
    this.#advance(length);
    if (this.#at >= this.#source.length) return;
    END_RAW.lastIndex = this.#at;
    const end = END_RAW.exec(this.#source) ?? this.#fail("Missing end of raw directive");
    this.#data(this.#source.slice(this.#at, end.index), end[1] ?? "", true);
    this.#advance(end.index + end[0].length - this.#at);
  }

  /** Reads the tokens of `{% … %}` or `{{ … }}`. */
  #tag(begin: TokenKind, end: TokenKind, closing: RegExp): void {
    /** Closing brackets of the open brackets. */
    const open: string[] = [];
    this.#push(begin, "");
    while (this.#at < this.#source.length) {
      const closed = open.length === 0 ? this.#match(closing) : undefined;
      if (closed !== undefined) {
        this.#push(end, "");
        this.#advance(closed.length);
        return;
      }
      const space = this.#match(SKIPPED);
      if (space === undefined) this.#token(open);
      else this.#advance(space.length);
    }
    // Without a closing, the parser reports the unexpected end.
  }

  /** Reads one token inside of a tag. */
  #token(open: string[]): void {
    const real = this.#match(FLOAT);
    if (real !== undefined) return this.#literal("number", real, float(Number(real.replaceAll("_", ""))));
    const whole = this.#match(INTEGER);
    if (whole !== undefined && whole.length > MAX_DIGITS) this.#fail(`an integer of more than ${MAX_DIGITS} digits`);
    if (whole !== undefined) return this.#literal("number", whole, int(BigInt(whole.replaceAll("_", "").replace(/^0+$/, "0"))));
    const name = this.#match(NAME);
    if (name !== undefined) {
      if (!/^[\p{ID_Start}_][\p{ID_Continue}]*$/u.test(name)) this.#fail("Invalid character in identifier");
      return this.#literal("name", name, null);
    }
    const text = this.#match(TEXT);
    if (text !== undefined) return this.#literal("text", text, this.#unescape(text.slice(1, -1)));
    const operator = this.#match(OPERATOR);
    if (operator === undefined) this.#fail(`unexpected char ${JSON.stringify(this.#source.charAt(this.#at))}`);
    const closing = CLOSING[operator];
    if (closing !== undefined) open.push(closing);
    else if (operator === "}" || operator === ")" || operator === "]") {
      const expected = open.pop();
      if (expected !== operator) this.#fail(`unexpected '${operator}'${expected === undefined ? "" : `, expected '${expected}'`}`);
    }
    this.#push("operator", operator);
    this.#advance(operator.length);
  }

  #literal(kind: TokenKind, source: string, value: TemplateValue): void {
    this.#push(kind, source, value);
    this.#advance(source.length);
  }

  /** Reads the escapes of a text as Python's `unicode-escape` does; a backslash before another character stays. */
  #unescape(text: string): string {
    if (!text.includes("\\")) return text;
    return text.replaceAll(ESCAPE, (whole, x?: string, u?: string, long?: string, octal?: string, other = "") => {
      const hex = x ?? u ?? long;
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
