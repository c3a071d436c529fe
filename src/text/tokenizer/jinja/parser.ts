/**
 * Parser of templates: statements here, expressions in `expression-parser.ts`.
 *
 * @source Jinja 3.1, "Template Designer Documentation": list of control structures; loop controls; transformers' block `generation`.
 */

import { CONSTANTS, ExpressionParser } from "./expression-parser.ts";
import { tokenize } from "./lexer.ts";
import type { TemplateExpression, MacroDefinition, Statement, Target } from "./nodes.ts";
import { describeToken } from "./token-reader.ts";

/** Statements of Python's Jinja that this engine does not support. */
const UNSUPPORTED_STATEMENTS: ReadonlySet<string> = new Set(["autoescape", "block", "extends", "from", "import", "include"]);

/** Max nesting of statements. */
const MAX_NESTING = 100;

/**
 * Parses a template.
 *
 * @throws TemplateSyntaxFailure naming the line, also for statements that are not supported.
 */
export function parseTemplate(source: string): readonly Statement[] {
  return new Parser(tokenize(source)).template();
}

/** Parser of one template. */
class Parser extends ExpressionParser {
  #nesting = 0;
  /** Number of loops around the current statement that `break` and `continue` can refer to. */
  #loops = 0;
  /** Names that may end the blocks around the current statement, innermost last. Only error messages use them. */
  readonly #endNames: (readonly string[])[] = [];

  template(): readonly Statement[] {
    return this.#statements();
  }

  /**
   * Reads statements up to a tag that begins with one of `endNames`, which is then the current token. Without `endNames`, reads up to the
   * end of the template.
   */
  #statements(...endNames: readonly string[]): Statement[] {
    this.#nesting++;
    if (this.#nesting > MAX_NESTING) this.fail(`statements nest more than ${MAX_NESTING} deep`);
    if (endNames.length > 0) this.#endNames.push(endNames);
    const statements: Statement[] = [];
    for (;;) {
      const token = this.next();
      if (token.kind === "end") {
        if (endNames.length > 0) this.fail(`unexpected end of the template, expected ${alternatives(endNames)}`);
        break;
      }
      if (token.kind === "data") statements.push({ kind: "data", text: token.text });
      else if (token.kind === "begin-print") {
        statements.push({ kind: "print", value: this.tuple() });
        this.expect("end-print");
      } else {
        if (endNames.some((name) => this.is("name", name))) break;
        statements.push(...this.#statement());
        this.expect("end-block");
      }
    }
    if (endNames.length > 0) this.#endNames.pop();
    this.#nesting--;
    return statements;
  }

  /** Reads the `%}` of an opening tag, the body after it, and the name that ends the body, one of `endNames`. */
  #body(...endNames: readonly string[]): { readonly body: Statement[]; readonly endName: string } {
    this.skip("operator", ":");
    this.expect("end-block");
    const body = this.#statements(...endNames);
    return { body, endName: this.next().text };
  }

  /** Reads a statement after `{%`, except the `%}` of its last tag. */
  #statement(): Statement[] {
    const { text: name } = this.expect("name");
    switch (name) {
      case "if":
        return [this.#if()];
      case "for":
        return [this.#for()];
      case "set":
        return [this.#set()];
      case "macro": {
        const macro = this.expect("name").text;
        return [{ kind: "macro", macro: this.#macroBody(macro, this.#parameters(), "endmacro") }];
      }
      case "call":
        return [this.#callBlock()];
      case "filter": {
        const filter = this.filter(undefined, { isFirstWithoutBar: true }) as TemplateExpression;
        return [{ kind: "filter-block", filter, body: this.#body("endfilter").body }];
      }
      case "with":
        return [this.#with()];
      case "generation":
        return [{ kind: "scope", body: this.#withoutLoop(() => this.#body("endgeneration").body) }];
      case "print":
        return this.#print();
      case "break":
      case "continue":
        if (this.#loops === 0) this.fail(`'${name}' outside loop`);
        return [{ kind: name }];
      default:
        return this.#unknown(name);
    }
  }

  /** Fails for a name that begins no supported statement. */
  #unknown(name: string): never {
    if (UNSUPPORTED_STATEMENTS.has(name)) return this.fail(`the statement '${name}' is not supported in chat templates`);
    const expected = this.#endNames.at(-1);
    return this.fail(`unknown tag '${name}'${expected === undefined ? "" : `, expected ${alternatives(expected)}`}`);
  }

  /** Reads `if` or `elif`, after that name, with all branches that follow. */
  #if(): Statement {
    const test = this.tuple({ withChoice: false });
    const { body, endName } = this.#body("elif", "else", "endif");
    if (endName === "elif") return { kind: "if", test, body, otherwise: [this.#if()] };
    return { kind: "if", test, body, otherwise: endName === "else" ? this.#body("endif").body : [] };
  }

  #for(): Statement {
    const target = this.#target({ endsAt: "in" });
    this.expect("name", "in");
    const iterable = this.tuple({ withChoice: false, endsAt: "recursive" });
    // The condition and the body may read `loop`, the iterable reads the variable of a loop around this one.
    const outerReads = this.reads;
    this.reads = new Set();
    const test = this.skip("name", "if") ? this.expression() : undefined;
    const isRecursive = this.skip("name", "recursive");
    this.#loops++;
    const { body, endName } = this.#body("endfor", "else");
    this.#loops--;
    const usesLoop = isRecursive || this.reads.has("loop");
    const otherwise = endName === "else" ? this.#forElse(isRecursive) : [];
    // Also adds `loop` of this loop, so that a loop around it gets an unused variable `loop`, which costs little.
    for (const name of this.reads) outerReads.add(name);
    this.reads = outerReads;
    return { kind: "for", target, iterable, test, isRecursive, usesLoop, body, otherwise };
  }

  /** Reads the body after `else` of a loop. */
  #forElse(isRecursive: boolean): Statement[] {
    const readBody = (): Statement[] => this.#body("endfor").body;
    // Jinja compiles a recursive loop to a function, in which `break` cannot refer to a loop outside.
    return isRecursive ? this.#withoutLoop(readBody) : readBody();
  }

  /** Reads `set target = value`, or the block `set target | filters` … `endset`. */
  #set(): Statement {
    const target = this.#target({ withMembers: true });
    if (this.skip("operator", "=")) return { kind: "set", target, value: this.tuple() };
    const filter = this.filter(undefined);
    return { kind: "set-block", target, filter, body: this.#body("endset").body };
  }

  #with(): Statement {
    const targets: Target[] = [];
    const values: TemplateExpression[] = [];
    while (this.token.kind !== "end-block") {
      if (targets.length > 0) this.expect("operator", ",");
      targets.push(this.#target());
      this.expect("operator", "=");
      values.push(this.expression());
    }
    return { kind: "with", targets, values, body: this.#body("endwith").body };
  }

  /** Reads `call(parameters) macro(arguments)` … `endcall`. */
  #callBlock(): Statement {
    const parameters = this.is("operator", "(") ? this.#parameters() : [];
    const call = this.expression();
    if (call.kind !== "call") return this.fail("expected call");
    return { kind: "call-block", call, caller: this.#macroBody("caller", parameters, "endcall") };
  }

  /** Reads the parameters of a macro in parentheses, with their defaults. */
  #parameters(): MacroDefinition["parameters"] {
    const parameters: { name: string; otherwise: TemplateExpression | undefined }[] = [];
    this.expect("operator", "(");
    while (!this.is("operator", ")")) {
      if (parameters.length > 0) this.expect("operator", ",");
      const { text: name } = this.expect("name");
      const otherwise = this.skip("operator", "=") ? this.expression() : undefined;
      if (otherwise === undefined && parameters.at(-1)?.otherwise !== undefined) this.fail("non-default argument follows default argument");
      parameters.push({ name, otherwise });
    }
    this.next();
    return parameters;
  }

  /** Reads the target of an assignment: a name, a tuple, and with `withMembers` also an attribute of a namespace. */
  #target(options: { readonly withMembers?: boolean; readonly endsAt?: string } = {}): Target {
    const { items, isTuple } = this.elements(options.endsAt, () => this.#simpleTarget(options));
    const [only] = items;
    if (only === undefined) return this.fail(`expected a name to assign to, got ${describeToken(this.token.kind, this.token.text)}`);
    return isTuple ? { kind: "tuple", items } : only;
  }

  /** Reads a name or an attribute of a namespace, also a target in parentheses. */
  #simpleTarget(options: { readonly withMembers?: boolean }): Target {
    if (this.skip("operator", "(")) {
      const inner = this.#target(options);
      this.expect("operator", ")");
      return inner;
    }
    const { text: name } = this.expect("name");
    if (CONSTANTS.has(name)) this.fail(`can't assign to '${name}'`);
    if (options.withMembers !== true || !this.skip("operator", ".")) return { kind: "name", name };
    this.reads.add(name);
    return { kind: "member", name, attribute: this.expect("name").text };
  }

  /** Reads the body of a macro or call block, up to the statement `endName`. */
  #macroBody(name: string, parameters: MacroDefinition["parameters"], endName: string): MacroDefinition {
    const outerReads = this.reads;
    const reads = new Set<string>();
    this.reads = reads;
    const { body } = this.#withoutLoop(() => this.#body(endName));
    this.reads = outerReads;
    for (const read of reads) outerReads.add(read);
    if (reads.has("caller") && parameters.some((parameter) => parameter.name === "caller" && parameter.otherwise === undefined)) {
      this.fail('the parameter "caller" of a macro or call block must be omitted or be given a default');
    }
    return { name, parameters, body, reads };
  }

  /** Parses a body that `break` and `continue` cannot leave. */
  #withoutLoop<T>(parse: () => T): T {
    const loops = this.#loops;
    this.#loops = 0;
    const parsed = parse();
    this.#loops = loops;
    return parsed;
  }

  /** Reads `print value, value`. */
  #print(): Statement[] {
    const statements: Statement[] = [];
    while (this.token.kind !== "end-block") {
      if (statements.length > 0) this.expect("operator", ",");
      statements.push({ kind: "print", value: this.expression() });
    }
    return statements;
  }
}

/** Returns names as a message lists them: `'else' or 'endif'`. */
function alternatives(names: readonly string[]): string {
  return names.map((name) => `'${name}'`).join(" or ");
}
