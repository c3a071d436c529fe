/**
 * Parser of the expressions of templates.
 *
 * @source Jinja 3.1, "Template Designer Documentation": expressions. Precedence from low to high: `if … else`, `or`, `and`, `not`,
 *   comparisons, `+ -`, `~`, `* / // %`, `**`, signs, attributes and calls, filters and tests.
 */

import type { Arguments, ComparisonOperator, TemplateExpression } from "./nodes.ts";
import type { Arithmetic } from "./numbers.ts";
import { describeToken, TokenReader } from "./token-reader.ts";

const COMPARISONS: ReadonlySet<string> = new Set(["==", "!=", "<", "<=", ">", ">="]);
/** Values of the names that are constants. */
export const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map<string, boolean | null>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

/** Max nesting of expressions. */
const MAX_NESTING = 200;

const NO_ARGUMENTS: Arguments = { positional: [], named: [], rest: undefined, keywords: undefined };

/** Reads expressions from tokens; the parser of statements extends it. */
export class ExpressionParser extends TokenReader {
  /** Names that the current body has read so far. The parser of statements replaces the set for the body of a macro or loop. */
  protected reads = new Set<string>();
  #nesting = 0;

  /** Parses one level deeper. Nesting is limited because it would exhaust the stack. */
  #nested<T>(parse: () => T): T {
    this.#nesting++;
    if (this.#nesting > MAX_NESTING) this.fail(`expressions nest more than ${MAX_NESTING} deep`);
    const parsed = parse();
    this.#nesting--;
    return parsed;
  }

  /** Reads an expression; without `withChoice` up to an `if`, which is then not a part of it. */
  protected expression(withChoice = true): TemplateExpression {
    return this.#nested(() => (withChoice ? this.#choice() : this.#or()));
  }

  /** Reads `value if test else otherwise`. */
  #choice(): TemplateExpression {
    let value = this.#or();
    while (this.skip("name", "if")) {
      const test = this.#or();
      const otherwise = this.skip("name", "else") ? this.#nested(() => this.#choice()) : undefined;
      value = { kind: "choice", test, value, otherwise };
    }
    return value;
  }

  #or(): TemplateExpression {
    let left = this.#and();
    while (this.skip("name", "or")) left = { kind: "or", left, right: this.#and() };
    return left;
  }

  #and(): TemplateExpression {
    let left = this.#not();
    while (this.skip("name", "and")) left = { kind: "and", left, right: this.#not() };
    return left;
  }

  #not(): TemplateExpression {
    return this.skip("name", "not") ? { kind: "not", value: this.#nested(() => this.#not()) } : this.#compare();
  }

  #compare(): TemplateExpression {
    const first = this.#sum();
    const rest: { operator: ComparisonOperator; value: TemplateExpression }[] = [];
    for (;;) {
      const { token } = this;
      if (token.kind === "operator" && COMPARISONS.has(token.text)) {
        this.next();
        rest.push({ operator: token.text as ComparisonOperator, value: this.#sum() });
      } else if (this.skip("name", "in")) rest.push({ operator: "in", value: this.#sum() });
      else if (this.is("name", "not") && this.is("name", "in", 1)) {
        this.next();
        this.next();
        rest.push({ operator: "not in", value: this.#sum() });
      } else break;
    }
    return rest.length === 0 ? first : { kind: "compare", first, rest };
  }

  #sum(): TemplateExpression {
    return this.#binary(["+", "-"], () => this.#concat());
  }

  #concat(): TemplateExpression {
    const parts = [this.#product()];
    while (this.skip("operator", "~")) parts.push(this.#product());
    return parts.length === 1 ? (parts[0] as TemplateExpression) : { kind: "concat", parts };
  }

  #product(): TemplateExpression {
    return this.#binary(["*", "/", "//", "%"], () => this.#power());
  }

  #power(): TemplateExpression {
    return this.#binary(["**"], () => this.filters(this.#unary()));
  }

  /** Reads operands between operators of one precedence, from left to right. */
  #binary(operators: readonly Arithmetic[], operand: () => TemplateExpression): TemplateExpression {
    let left = operand();
    while (this.token.kind === "operator" && (operators as readonly string[]).includes(this.token.text)) {
      const operator = this.next().text as Arithmetic;
      left = { kind: "binary", operator, left, right: operand() };
    }
    return left;
  }

  /** Reads a value with its signs, attributes and calls. */
  #unary(): TemplateExpression {
    const { token } = this;
    if (token.kind === "operator" && (token.text === "-" || token.text === "+")) {
      this.next();
      return this.#postfix({ kind: "sign", operator: token.text, value: this.#nested(() => this.#unary()) });
    }
    return this.#postfix(this.#primary());
  }

  /** Reads a name, a literal or an expression in brackets. */
  #primary(): TemplateExpression {
    const { token } = this;
    switch (token.kind) {
      case "name": {
        this.next();
        const constant = CONSTANTS.get(token.text);
        if (constant !== undefined) return { kind: "constant", value: constant };
        this.reads.add(token.text);
        return { kind: "name", name: token.text };
      }
      case "text": {
        let text = "";
        while (this.token.kind === "text") text += this.next().value as string;
        return { kind: "constant", value: text };
      }
      case "number":
        return { kind: "constant", value: this.next().value };
      default:
        break;
    }
    if (this.skip("operator", "(")) {
      const value = this.tuple({ isParenthesized: true });
      this.expect("operator", ")");
      return value;
    }
    if (this.skip("operator", "[")) return { kind: "list", items: this.#sequence("]", () => this.expression()) };
    if (this.skip("operator", "{")) {
      const entry = (): readonly [TemplateExpression, TemplateExpression] => {
        const key = this.expression();
        this.expect("operator", ":");
        return [key, this.expression()];
      };
      return { kind: "dict", entries: this.#sequence("}", entry) };
    }
    return this.fail(`unexpected ${describeToken(token.kind, token.text)}`);
  }

  /** Reads elements between commas up to a closing bracket; a comma may follow the last one. */
  #sequence<T>(closing: string, parse: () => T): T[] {
    const items: T[] = [];
    while (!this.is("operator", closing)) {
      if (items.length > 0) {
        this.expect("operator", ",");
        if (this.is("operator", closing)) break;
      }
      items.push(parse());
    }
    this.next();
    return items;
  }

  /** Reads an expression, or a tuple if there are commas; `endsAt` is a name that ends the tuple. */
  protected tuple(
    options: { readonly isParenthesized?: boolean; readonly withChoice?: boolean; readonly endsAt?: string } = {},
  ): TemplateExpression {
    const { items, isTuple } = this.elements(options.endsAt, () => this.expression(options.withChoice));
    if (!isTuple) {
      const [only] = items;
      if (only !== undefined) return only;
      if (options.isParenthesized !== true) this.fail(`expected an expression, got ${describeToken(this.token.kind, this.token.text)}`);
    }
    return { kind: "tuple", items };
  }

  /** Reads elements between commas, also after the last one. `isTuple` if there is a comma. */
  protected elements<T>(endsAt: string | undefined, parse: () => T): { readonly items: readonly T[]; readonly isTuple: boolean } {
    const items: T[] = [];
    let isTuple = false;
    while (!this.#endsTuple(endsAt)) {
      items.push(parse());
      if (!this.skip("operator", ",")) break;
      isTuple = true;
    }
    return { items, isTuple };
  }

  #endsTuple(name: string | undefined): boolean {
    const { kind } = this.token;
    return kind === "end-print" || kind === "end-block" || this.is("operator", ")") || (name !== undefined && this.is("name", name));
  }

  /** Reads attributes, subscripts and calls after a value. */
  #postfix(value: TemplateExpression): TemplateExpression {
    let result = value;
    for (;;) {
      if (this.skip("operator", ".")) result = this.#member(result);
      else if (this.skip("operator", "[")) result = this.#subscript(result);
      else if (this.is("operator", "(")) result = { kind: "call", called: result, args: this.#arguments() };
      else return result;
    }
  }

  /** Reads the name or number after `.`. */
  #member(value: TemplateExpression): TemplateExpression {
    const token = this.next();
    if (token.kind === "name") return { kind: "attribute", value, name: token.text };
    if (token.kind !== "number" || typeof token.value === "object") return this.fail("expected name or number");
    return { kind: "item", value, key: { kind: "constant", value: token.value } };
  }

  /** Reads the subscript after `[`. */
  #subscript(value: TemplateExpression): TemplateExpression {
    const keys = this.#sequence("]", () => this.#key(value));
    const [only] = keys;
    if (keys.length === 1 && only !== undefined) return only.kind === "slice" ? only : { kind: "item", value, key: only };
    if (keys.some((key) => key.kind === "slice")) return this.fail("several slices in one subscript are not supported in chat templates");
    return { kind: "item", value, key: { kind: "tuple", items: keys } };
  }

  /** Reads one key of a subscript, or a slice of `value`. */
  #key(value: TemplateExpression): TemplateExpression {
    const start = this.is("operator", ":") ? undefined : this.expression();
    if (!this.skip("operator", ":")) return start as TemplateExpression;
    const bound = (): TemplateExpression | undefined =>
      this.is("operator", ":") || this.is("operator", "]") || this.is("operator", ",") ? undefined : this.expression();
    const stop = bound();
    const step = this.skip("operator", ":") ? bound() : undefined;
    return { kind: "slice", value, start, stop, step };
  }

  /** Reads the filters and tests after a value, and calls of their results. */
  protected filters(value: TemplateExpression): TemplateExpression {
    let result = value;
    for (;;) {
      if (this.is("operator", "|")) result = this.filter(result) as TemplateExpression;
      else if (this.is("name", "is")) result = this.#test(result);
      else if (this.is("operator", "(")) result = { kind: "call", called: result, args: this.#arguments() };
      else return result;
    }
  }

  /**
   * Reads filters `| name(…)`, also none.
   *
   * @param value - Filtered value; undefined for the text of a block.
   * @param options - `isFirstWithoutBar` for `{% filter upper %}`, in which the first filter has no bar.
   */
  protected filter(
    value: TemplateExpression | undefined,
    options: { readonly isFirstWithoutBar?: boolean } = {},
  ): TemplateExpression | undefined {
    let result = value;
    let isWithoutBar = options.isFirstWithoutBar === true;
    while (isWithoutBar || this.skip("operator", "|")) {
      const name = this.#dottedName();
      const args = this.is("operator", "(") ? this.#arguments() : NO_ARGUMENTS;
      result = { kind: "filter", name, value: result, args };
      isWithoutBar = false;
    }
    return result;
  }

  #dottedName(): string {
    let name = this.expect("name").text;
    while (this.skip("operator", ".")) name += `.${this.expect("name").text}`;
    return name;
  }

  /** Reads a test, which begins with `is`. One argument may follow its name without brackets: `x is divisibleby 3`. */
  #test(value: TemplateExpression): TemplateExpression {
    this.next();
    const isNegated = this.skip("name", "not");
    const name = this.#dottedName();
    let args = NO_ARGUMENTS;
    if (this.is("operator", "(")) args = this.#arguments();
    else if (this.#startsTestArgument()) {
      if (this.is("name", "is")) this.fail("You cannot chain multiple tests with is");
      args = { ...NO_ARGUMENTS, positional: [this.#postfix(this.#primary())] };
    }
    const test: TemplateExpression = { kind: "test", name, value, args };
    return isNegated ? { kind: "not", value: test } : test;
  }

  /** Whether the current token can begin the argument of a test without brackets. The words of `x is odd and y` cannot. */
  #startsTestArgument(): boolean {
    const { kind, text } = this.token;
    if (kind === "name") return text !== "else" && text !== "or" && text !== "and";
    return kind === "text" || kind === "number" || this.is("operator", "[") || this.is("operator", "{");
  }

  /** Reads the arguments of a call in parentheses, which must have the order of {@link Arguments}. */
  #arguments(): Arguments {
    const positional: TemplateExpression[] = [];
    const named: { name: string; value: TemplateExpression }[] = [];
    let rest: TemplateExpression | undefined;
    let keywords: TemplateExpression | undefined;
    const failIf = (isMisplaced: boolean): void => {
      if (isMisplaced) this.fail("invalid syntax for function call expression");
    };
    this.expect("operator", "(");
    this.#sequence(")", () => {
      if (this.skip("operator", "*")) {
        failIf(rest !== undefined || keywords !== undefined);
        rest = this.expression();
      } else if (this.skip("operator", "**")) {
        failIf(keywords !== undefined);
        keywords = this.expression();
      } else if (this.token.kind === "name" && this.is("operator", "=", 1)) {
        failIf(keywords !== undefined);
        const name = this.next().text;
        this.next();
        named.push({ name, value: this.expression() });
      } else {
        failIf(rest !== undefined || keywords !== undefined || named.length > 0);
        positional.push(this.expression());
      }
    });
    return { positional, named, rest, keywords };
  }
}
