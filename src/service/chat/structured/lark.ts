/** Grammars in the notation of Lark: `start: "a" WORD+`, `WORD: /[a-z]+/`, with `//` before remarks. */
import { optional, set, text, type Expression, type GrammarBuilder } from "../../../engine/grammar/expression.ts";
import { regexExpression } from "./regex.ts";
import { RuleReader } from "./rule-reader.ts";

class LarkReader extends RuleReader {
  protected readonly root = "start";
  protected readonly blank = /(?:\s|\/\/[^\n]*|#[^\n]*)*/y;
  protected readonly head = /[?!]{0,2}([A-Za-z_]\w*)(?:\.-?\d+)?\s*:/y;

  override read(): Expression {
    const directive = /^[ \t]*%(\w+)/m.exec(this.source);
    if (directive !== null) {
      this.at = directive.index;
      throw this.refuse(`the directive %${directive[1]}`);
    }
    const template = /^[ \t]*[?!]{0,2}\w+\{/m.exec(this.source);
    if (template !== null) {
      this.at = template.index;
      throw this.refuse("a template");
    }
    return super.read();
  }

  protected item(): Expression | undefined {
    if (this.take('"')) return this.#string();
    if (this.take("(")) return this.group(")");
    if (this.take("[")) return optional(this.group("]"));
    if (this.source[this.at] === "/" && this.source[this.at + 1] !== "/") return this.#regex();
    return this.call(/[A-Za-z_]\w*/y);
  }

  protected times(item: Expression): Expression | undefined {
    const found = this.match(/\s*~\s*(\d+)(?:\s*\.\.\s*(\d+))?/y);
    return found === null ? undefined : this.between(item, found[1]!, found[2] ?? found[1]);
  }

  /** The name that a parse tree would have; a text has none. */
  protected trailer(): void {
    this.match(/->\s*\w+/y);
  }

  #string(): Expression {
    const first = this.quoted('"');
    if (this.match(/i(?!\w)/y) !== null) throw this.refuse("a string without regard to case");
    if (this.match(/\s*\.\.\s*"/y) === null) return text(first);
    const last = this.quoted('"');
    const [from, to] = [first.codePointAt(0), last.codePointAt(0)];
    if (from === undefined || to === undefined || [...first].length > 1 || [...last].length > 1 || to < from)
      throw this.error("expected a range from one character to a higher one");
    return set([from, to]);
  }

  #regex(): Expression {
    const found = this.match(/\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/y);
    if (found === null) throw this.error("expected a regular expression");
    if (found[2] !== "") throw this.refuse(`the flags \`${found[2]}\` of a regular expression`);
    return regexExpression(found[1]!, this.builder, "A regular expression of the grammar");
  }
}

/** Whether a text is in this notation: in EBNF rules are defined by `::=`. */
export function isLark(source: string): boolean {
  return !source.includes("::=");
}

/**
 * The texts of a Lark grammar. Nothing is left out between its terminals: it says all white space itself.
 *
 * @throws ArgumentError `E_ARGUMENT` where it does not parse, with the place.
 * @throws UnsupportedError `E_UNSUPPORTED` for directives (`%import`, `%ignore`), templates, and strings and expressions with flags.
 */
export function larkExpression(source: string, builder: GrammarBuilder): Expression {
  return new LarkReader(source, builder).read();
}
