/** Grammars in EBNF: `root ::= "a" [b-z]{2,3} (rule | "")`, with comments after `#`. */
import { complement } from "../code-points.ts";
import { text, type CodePointRange, type Expression, type GrammarBuilder } from "../expression.ts";
import { RuleReader } from "./rule-reader.ts";
import { codePointAt } from "../../../base/util/values.ts";

/** Macros of XGrammar's EBNF, which are not supported. */
const MACROS = /(?:TagDispatch|TokenTagDispatch|Token|ExcludeToken)\s*\(/y;

/** Parser of EBNF; the base class parses the common parts. */
class EbnfReader extends RuleReader {
  protected readonly root = "root";
  protected readonly blank = /(?:\s|#[^\n]*)*/y;
  protected readonly head = /([A-Za-z_][\w.-]*)\s*::=/y;

  protected item(): Expression | undefined {
    if (this.take('"')) return text(this.quoted('"'));
    if (this.take("'")) return text(this.quoted("'"));
    if (this.take("[")) return this.#class();
    if (this.take("(=")) throw this.unsupported("a lookahead");
    if (this.take("(")) return this.group(")");
    if (this.match(MACROS) !== null) throw this.unsupported("a macro");
    return this.call(/[A-Za-z_][\w.-]*/y);
  }

  protected countedRepeat(item: Expression): Expression | undefined {
    const [, min, comma, max] = this.match(/\{\s*(\d+)\s*(,\s*(\d+)?\s*)?\}/y) ?? [];
    return min === undefined ? undefined : this.repeatBetween(item, min, comma === undefined ? min : max);
  }

  protected trailer(): void {
    // EBNF has nothing after the items of an alternative.
  }

  /** Parses the rest of a character class such as `[^a-z]`, after its opening bracket. */
  #class(): Expression {
    const isNegated = this.take("^");
    const ranges: CodePointRange[] = [];
    while (!this.take("]")) {
      if (this.position >= this.source.length) throw this.syntaxError("expected `]`");
      const first = codePointAt(this.character(), 0);
      let last = first;
      if (this.source[this.position] === "-" && this.source[this.position + 1] !== "]" && this.take("-")) {
        if (this.position >= this.source.length) throw this.syntaxError("expected `]`");
        last = codePointAt(this.character(), 0);
      }
      if (last < first) throw this.syntaxError("expected a range of characters from the lower to the higher");
      ranges.push([first, last]);
    }
    return { kind: "set", ranges: isNegated ? complement(ranges) : ranges };
  }
}

/**
 * Parses an EBNF grammar into the expression of its texts.
 *
 * @param source - The grammar; its start rule is `root`.
 * @param builder - Builder that receives the rules.
 * @throws ArgumentError `E_ARGUMENT` with line and column if it does not parse.
 * @throws UnsupportedError `E_UNSUPPORTED` for lookaheads and macros.
 */
export function ebnfExpression(source: string, builder: GrammarBuilder): Expression {
  return new EbnfReader(source, builder).read();
}
