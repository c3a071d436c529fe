/** Compiler of statements to functions that write to an output. */

import { callMethod, callValue } from "./attributes.ts";
import { TemplateFailure, typeError, valueError } from "./errors.ts";
import { type Evaluate, ExpressionCompiler } from "./expressions.ts";
import { Loop } from "./loop.ts";
import type { Meter } from "./meter.ts";
import type { Signature, Statement, Target } from "./nodes.ts";
import { itemsOf, iterateValue, valueLength } from "./operators.ts";
import { toText } from "./print.ts";
import { Output, type Scope } from "./scope.ts";
import { namesOf } from "./scoping.ts";
import { Callable, Dict, type Keywords, Namespace, truth, Tuple, Undefined, type TemplateValue } from "./values.ts";

/** End of a statement: the loop around it ends (`break`) or continues with its next element; undefined if the next statement follows. */
type Exit = "break" | "continue" | undefined;
/** Runs a statement. */
type Run = (scope: Scope, output: Output) => Exit;
type Assign = (scope: Scope, value: TemplateValue) => void;

/**
 * Compiles statements.
 *
 * @throws TemplateFailure for a filter or test that Python's Jinja does not have.
 */
export function compileStatements(statements: readonly Statement[]): ScopedBody {
  return new StatementCompiler().scoped(statements);
}

/** Statements that run in a scope of their own. */
interface ScopedBody {
  readonly run: Run;
  /** Names that are undefined in the scope until it assigns them. */
  readonly own: ReadonlySet<string>;
}

class StatementCompiler extends ExpressionCompiler {
  /** Names of the scopes around the statements being compiled. */
  readonly #scopes: ReadonlySet<string>[] = [];

  /** Compiles statements with a scope of their own. @param given - Names that the scope has from its beginning: parameters and targets. */
  scoped(statements: readonly Statement[], given: readonly string[] = []): ScopedBody {
    const { all, own } = namesOf(statements, (name) => given.includes(name) || this.#scopes.some((names) => names.has(name)));
    this.#scopes.push(new Set([...all, ...given]));
    const run = this.body(statements);
    this.#scopes.pop();
    return { run, own };
  }

  /** Compiles statements that run in the current scope. */
  body(statements: readonly Statement[]): Run {
    const runs = statements.map((statement) => this.#statement(statement));
    const [only] = runs;
    if (runs.length === 1 && only !== undefined) return only;
    return (scope, output) => {
      for (const run of runs) {
        const exit = run(scope, output);
        if (exit !== undefined) return exit;
      }
      return undefined;
    };
  }

  #statement(node: Statement): Run {
    switch (node.kind) {
      case "data": {
        const { text } = node;
        return (_, output) => output.write(text);
      }
      case "print": {
        const value = this.expression(node.value);
        return (scope, output) => {
          scope.meter.charge(1);
          output.write(toText(scope.meter, value(scope)));
          return undefined;
        };
      }
      case "if": {
        const test = this.expression(node.test);
        const [body, otherwise] = this.inBranch(() => [this.body(node.body), this.body(node.otherwise)]);
        return (scope, output) => {
          scope.meter.charge(1);
          return truth(test(scope)) ? body(scope, output) : otherwise(scope, output);
        };
      }
      case "for":
        return this.#for(node);
      case "break":
      case "continue": {
        const { kind } = node;
        return () => kind;
      }
      case "set": {
        const value = this.expression(node.value);
        const assign = this.#target(node.target);
        return (scope) => {
          scope.meter.charge(1);
          assign(scope, value(scope));
          return undefined;
        };
      }
      case "set-block": {
        const [body, assign] = [this.scoped(node.body), this.#target(node.target)];
        const filter = node.filter === undefined ? undefined : this.filterChain(node.filter);
        return (scope) => {
          const { text, exit } = renderBody(body, scope);
          if (exit === undefined) assign(scope, filter === undefined ? text : filter(scope, text));
          return exit;
        };
      }
      case "macro": {
        const { name } = node.macro;
        const macro = this.#macro(node.macro, name);
        return (scope) => scope.set(name, macro(scope));
      }
      case "call-block":
        return this.#callBlock(node);
      case "filter-block": {
        const [body, filter] = [this.scoped(node.body), this.filterChain(node.filter)];
        return (scope, output) => {
          const { text, exit } = renderBody(body, scope);
          if (exit === undefined) output.write(toText(scope.meter, filter(scope, text)));
          return exit;
        };
      }
      case "with": {
        const body = this.scoped(node.body, node.targets.flatMap(targetNames));
        const targets = node.targets.map((target) => this.#target(target));
        const values = node.values.map((value) => this.expression(value));
        return (scope, output) => {
          const inner = scope.inner(body.own);
          const given = values.map((value) => value(scope));
          for (const [at, assign] of targets.entries()) assign(inner, given[at] as TemplateValue);
          return body.run(inner, output);
        };
      }
      case "scope": {
        const body = this.scoped(node.body);
        return (scope, output) => output.write(renderBody(body, scope).text);
      }
      default:
        return node satisfies never;
    }
  }

  #for(node: Statement & { readonly kind: "for" }): Run {
    const [iterable, assign] = [this.expression(node.iterable), this.#target(node.target)];
    const body = this.scoped(node.body, [...targetNames(node.target), "loop"]);
    const otherwise = node.otherwise.length === 0 ? undefined : this.scoped(node.otherwise);
    const test = node.test === undefined ? undefined : this.expression(node.test);
    const render = (scope: Scope, output: Output, value: TemplateValue, depth: number): Exit => {
      const { meter } = scope;
      let elements: Iterator<TemplateValue> = iterateValue(meter, value);
      if (test !== undefined) elements = filtered(scope, elements, assign, test);
      const recursion = !node.isRecursive
        ? undefined
        : (inner: TemplateValue, level: number): string => {
            const text = new Output(meter);
            render(scope, text, inner, level);
            return text.text;
          };
      const loop = node.usesLoop
        ? new Loop(elements, test === undefined ? valueLength(meter, value) : undefined, depth, recursion)
        : undefined;
      // As in Jinja, an element whose iteration ends in `continue` or `break` does not count for `else`.
      let isEmpty = true;
      for (;;) {
        let element: TemplateValue | undefined;
        if (loop === undefined) {
          const next = elements.next();
          element = next.done === true ? undefined : next.value;
        } else element = loop.advance();
        if (element === undefined) break;
        const inner = scope.inner(body.own);
        if (loop !== undefined) inner.set("loop", loop);
        assign(inner, element);
        const exit = body.run(inner, output);
        if (exit === "break") break;
        if (exit === undefined) isEmpty = false;
      }
      return isEmpty ? otherwise?.run(scope.inner(otherwise.own), output) : undefined;
    };
    return (scope, output) => {
      scope.meter.charge(1);
      return render(scope, output, iterable(scope), 0);
    };
  }

  #target(target: Target): Assign {
    switch (target.kind) {
      case "name": {
        const { name } = target;
        return (scope, value) => scope.set(name, value);
      }
      case "member": {
        const { name, attribute } = target;
        return (scope, value) => {
          const namespace = scope.get(name);
          if (!(namespace instanceof Namespace)) throw new TemplateFailure("cannot assign attribute on non-namespace object");
          namespace.set(attribute, value);
        };
      }
      case "tuple": {
        const items = target.items.map((item) => this.#target(item));
        return (scope, value) => {
          const values = itemsOf(scope.meter, value);
          if (values.length !== items.length) {
            return valueError(
              values.length > items.length
                ? `too many values to unpack (expected ${items.length})`
                : `not enough values to unpack (expected ${items.length}, got ${values.length})`,
            );
          }
          for (const [at, assign] of items.entries()) assign(scope, values[at] as TemplateValue);
        };
      }
      default:
        return target satisfies never;
    }
  }

  #callBlock(node: Statement & { readonly kind: "call-block" }): Run {
    const macro = this.#macro(node.caller, null);
    const { called } = node.call;
    const given = this.args(node.call.args);
    const method = called.kind === "attribute" ? called.name : undefined;
    const callee = this.expression(called.kind === "attribute" ? called.value : called);
    return (scope, output) => {
      const { meter } = scope;
      const self = callee(scope);
      const { args, keywords } = given?.(scope) ?? { args: [], keywords: new Map<string, TemplateValue>() };
      if (keywords.has("caller")) return typeError("got multiple values for keyword argument 'caller'");
      const all = new Map([...keywords, ["caller", macro(scope)] as const]);
      const result = method === undefined ? callValue(meter, self, args, all) : callMethod(meter, self, method, args, all);
      return output.write(toText(meter, result));
    };
  }

  /**
   * Compiles a macro to a function of the scope in which it is defined.
   *
   * @param name - Name of the macro; null for the body of a call block.
   */
  #macro(signature: Signature, name: string | null): (scope: Scope) => Macro {
    const body = this.scoped(signature.body, [...signature.parameters.map(({ name }) => name), "caller", "kwargs", "varargs"]);
    const defaults = signature.parameters.map(({ otherwise }) => (otherwise === undefined ? undefined : this.expression(otherwise)));
    return (scope) => new Macro(signature, name, defaults, body, scope);
  }
}

/** Yields the elements for which the condition of a loop holds, each tested just before its turn. */
function* filtered(
  scope: Scope,
  elements: Iterator<TemplateValue>,
  assign: Assign,
  test: Evaluate,
): Generator<TemplateValue, void, undefined> {
  for (let next = elements.next(); next.done !== true; next = elements.next()) {
    const inner = scope.inner();
    assign(inner, next.value);
    if (truth(test(inner))) yield next.value;
  }
}

/** Returns the text of a body in a scope of its own, up to the `break` or `continue` that left it. */
function renderBody(body: ScopedBody, scope: Scope, prepare?: (inner: Scope) => void): { readonly text: string; readonly exit: Exit } {
  const output = new Output(scope.meter);
  const inner = scope.inner(body.own);
  prepare?.(inner);
  const exit = body.run(inner, output);
  return { text: output.text, exit };
}

function targetNames(target: Target): string[] {
  if (target.kind === "tuple") return target.items.flatMap(targetNames);
  return target.kind === "name" ? [target.name] : [];
}

/** Macro of a template, and the body of a call block. */
class Macro extends Callable {
  override readonly attributes: ReadonlyMap<string, TemplateValue>;

  constructor(signature: Signature, name: string | null, defaults: readonly (Evaluate | undefined)[], body: ScopedBody, scope: Scope) {
    super((meter, args, keywords) => {
      return meter.deeper(() => renderBody(body, scope, (inner) => bindArguments(meter, signature, defaults, inner, args, keywords)).text);
    }, "Macro");
    this.attributes = new Map<string, TemplateValue>([
      ["name", name],
      ["arguments", new Tuple(signature.parameters.map((parameter) => parameter.name))],
      ["catch_kwargs", receives(signature, "kwargs")],
      ["catch_varargs", receives(signature, "varargs")],
      ["caller", signature.reads.has("caller")],
      ["explicit_caller", hasParameter(signature, "caller")],
    ]);
  }

  override print(): string {
    const name = this.attributes.get("name");
    return typeof name === "string" ? `<Macro '${name}'>` : "<Macro anonymous>";
  }
}

function hasParameter({ parameters }: Signature, name: string): boolean {
  return parameters.some((parameter) => parameter.name === name);
}

/** Whether a macro reads a special name, such as `varargs`, that no parameter of its own has. */
function receives(signature: Signature, name: "caller" | "kwargs" | "varargs"): boolean {
  return signature.reads.has(name) && !hasParameter(signature, name);
}

/** Sets the parameters of a macro, and the special names that it reads, in the scope of its body. */
function bindArguments(
  meter: Meter,
  signature: Signature,
  defaults: readonly (Evaluate | undefined)[],
  scope: Scope,
  args: readonly TemplateValue[],
  keywords: Keywords,
): void {
  const { name, parameters } = signature;
  meter.charge(parameters.length + args.length + keywords.size);
  const rest = new Map(keywords);
  for (const [at, parameter] of parameters.entries()) {
    let value = args[at];
    if (value === undefined && rest.has(parameter.name)) {
      value = rest.get(parameter.name);
      rest.delete(parameter.name);
    }
    const otherwise = defaults[at];
    if (value === undefined)
      value = otherwise === undefined ? new Undefined(`parameter '${parameter.name}' was not provided`) : otherwise(scope);
    scope.set(parameter.name, value);
  }
  if (receives(signature, "caller")) {
    const caller = rest.get("caller");
    rest.delete("caller");
    scope.set("caller", caller === undefined || caller === null ? new Undefined("No caller defined") : caller);
  }
  if (receives(signature, "kwargs")) {
    const dict = new Dict();
    for (const [key, value] of rest) dict.set(key, value);
    scope.set("kwargs", dict);
  } else if (rest.size > 0) {
    const [first = ""] = rest.keys();
    typeError(`macro '${name}' takes no keyword argument '${first}'`);
  }
  if (receives(signature, "varargs")) scope.set("varargs", new Tuple(args.slice(parameters.length)));
  else if (args.length > parameters.length) typeError(`macro '${name}' takes not more than ${parameters.length} argument(s)`);
}
