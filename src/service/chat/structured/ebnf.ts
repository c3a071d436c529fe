/** Grammars in EBNF: `root ::= "a" [b-z]{2,3} (rule | "")`, with `#` before remarks. */
import { complement } from "../../../engine/grammar/code-points.ts";
import { text, type CodePointRange, type Expression, type GrammarBuilder } from "../../../engine/grammar/expression.ts";
import { RuleReader } from "./rule-reader.ts";

/** What other readers of the notation have and this one does not. */
const MACROS = /(?:TagDispatch|TokenTagDispatch|Token|ExcludeToken)\s*\(/y;

class EbnfReader extends RuleReader {
  protected readonly root = "root";
  protected readonly blank = /(?:\s|#[^\n]*)*/y;
  protected readonly head = /([A-Za-z_][\w.-]*)\s*::=/y;

  protected item(): Expression | undefined {
    if (this.take('"')) return text(this.quoted('"'));
    if (this.take("'")) return text(this.quoted("'"));
    if (this.take("[")) return this.#class();
    if (this.take("(=")) throw this.refuse("a lookahead");
    if (this.take("(")) return this.group(")");
    if (this.match(MACROS) !== null) throw this.refuse("a macro");
    return this.call(/[A-Za-z_][\w.-]*/y);
  }

  protected times(item: Expression): Expression | undefined {
    const found = this.match(/\{\s*(\d+)\s*(,\s*(\d+)?\s*)?\}/y);
    return found === null ? undefined : this.between(item, found[1]!, found[2] === undefined ? found[1] : found[3]);
  }

  protected trailer(): void {
    // An alternative is its items and nothing else.
  }

  #class(): Expression {
    const isNegated = this.take("^");
    const ranges: CodePointRange[] = [];
    while (!this.take("]")) {
      if (this.at >= this.source.length) throw this.error("expected `]`");
      const first = this.character().codePointAt(0)!;
      let last = first;
      if (this.source[this.at] === "-" && this.source[this.at + 1] !== "]" && this.take("-")) {
        if (this.at >= this.source.length) throw this.error("expected `]`");
        last = this.character().codePointAt(0)!;
      }
      if (last < first) throw this.error("expected a range of characters from the lower to the higher");
      ranges.push([first, last]);
    }
    return { kind: "set", ranges: isNegated ? complement(ranges) : ranges };
  }
}

/**
 * The texts of an EBNF grammar.
 *
 * @throws ArgumentError `E_ARGUMENT` where it does not parse, with the place.
 * @throws UnsupportedError `E_UNSUPPORTED` for lookaheads and macros.
 */
export function ebnfExpression(source: string, builder: GrammarBuilder): Expression {
  return new EbnfReader(source, builder).read();
}
