/** Grammars in the notation of Lark: `start: "a" WORD+`, `WORD: /[a-z]+/`, with comments after `//` or `#`. */
import { optional, set, text, type Expression, type GrammarBuilder } from "../expression.ts";
import { regexExpression } from "./regex.ts";
import { RuleReader } from "./rule-reader.ts";

/** Parser of Lark; the base class parses the common parts. */
class LarkReader extends RuleReader {
  protected readonly root = "start";
  protected readonly blank = /(?:\s|\/\/[^\n]*|#[^\n]*)*/y;
  protected readonly head = /[?!]{0,2}([A-Za-z_]\w*)(?:\.-?\d+)?\s*:/y;

  override read(): Expression {
    const directive = /^[ \t]*%(\w+)/m.exec(this.source);
    if (directive !== null) {
      this.position = directive.index;
      throw this.unsupported(`the directive %${directive[1]}`);
    }
    const template = /^[ \t]*[?!]{0,2}\w+\{/m.exec(this.source);
    if (template !== null) {
      this.position = template.index;
      throw this.unsupported("a template");
    }
    return super.read();
  }

  protected item(): Expression | undefined {
    if (this.take('"')) return this.#string();
    if (this.take("(")) return this.group(")");
    if (this.take("[")) return optional(this.group("]"));
    if (this.source[this.position] === "/" && this.source[this.position + 1] !== "/") return this.#regex();
    return this.call(/[A-Za-z_]\w*/y);
  }

  protected countedRepeat(item: Expression): Expression | undefined {
    const [, min, max = min] = this.match(/\s*~\s*(\d+)(?:\s*\.\.\s*(\d+))?/y) ?? [];
    return min === undefined ? undefined : this.repeatBetween(item, min, max);
  }

  /** Skips the alias of an alternative, which names a parse tree node and does not affect the text. */
  protected trailer(): void {
    this.match(/->\s*\w+/y);
  }

  /** Parses the rest of a string or of a range of characters (`"a".."z"`), after its opening quote. */
  #string(): Expression {
    const first = this.quoted('"');
    if (this.match(/i(?!\w)/y) !== null) throw this.unsupported("a string without regard to case");
    if (this.match(/\s*\.\.\s*"/y) === null) return text(first);
    const last = this.quoted('"');
    const [from, to] = [first.codePointAt(0), last.codePointAt(0)];
    if (from === undefined || to === undefined || [...first].length > 1 || [...last].length > 1 || to < from)
      throw this.syntaxError("expected a range from one character to a higher one");
    return set([from, to]);
  }

  /** Parses a regular expression between slashes. */
  #regex(): Expression {
    const [, pattern, flags] = this.match(/\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/y) ?? [];
    if (pattern === undefined) throw this.syntaxError("expected a regular expression");
    if (flags !== "") throw this.unsupported(`the flags \`${flags}\` of a regular expression`);
    return regexExpression(pattern, this.builder, "A regular expression of the grammar");
  }
}

/** Whether a grammar is in the notation of Lark: EBNF, the other notation, defines rules with `::=`. */
export function isLark(source: string): boolean {
  return !source.includes("::=");
}

/**
 * Parses a Lark grammar into the expression of its texts. No text is ignored between terminals: the grammar must include all white space.
 *
 * @param source - The grammar; its start rule is `start`.
 * @param builder - Builder that receives the rules.
 * @throws ArgumentError `E_ARGUMENT` with line and column if it does not parse.
 * @throws UnsupportedError `E_UNSUPPORTED` for directives (`%import`, `%ignore`), templates, and strings and regular expressions with
 *   flags.
 */
export function larkExpression(source: string, builder: GrammarBuilder): Expression {
  return new LarkReader(source, builder).read();
}
