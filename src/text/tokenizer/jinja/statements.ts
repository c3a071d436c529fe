/**
 * Compiler of statements to functions that run in a scope and write to an output, so that renderings need not walk the syntax tree.
 * `expressions.ts` compiles the expressions in them.
 */

import { callMethod, callValue } from "./attributes.ts";
import { type Exit, renderBody, type Run, type ScopedBody } from "./body.ts";
import { TemplateFailure, typeError, valueError } from "./errors.ts";
import { type Evaluate, ExpressionCompiler } from "./expressions.ts";
import { Loop } from "./loop.ts";
import { Macro } from "./macro.ts";
import type { MacroDefinition, Statement, Target } from "./nodes.ts";
import { itemsOf, iterateValue, valueLength } from "./operators.ts";
import { toText } from "./print.ts";
import { Output, type Scope } from "./scope.ts";
import { namesOf } from "./scoping.ts";
import { Namespace, isTruthy, type TemplateValue } from "./values.ts";

/** Assigns a value to a target. */
type Assign = (scope: Scope, value: TemplateValue) => void;

/**
 * Compiles statements.
 *
 * @throws TemplateFailure for a filter or test that Python's Jinja does not have.
 */
export function compileStatements(statements: readonly Statement[]): ScopedBody {
  return new StatementCompiler().scoped(statements);
}

/** Compiler of one template. */
class StatementCompiler extends ExpressionCompiler {
  /** Names of each scope around the statements being compiled, innermost last. */
  readonly #outerNames: ReadonlySet<string>[] = [];

  /**
   * Compiles statements with a scope of their own.
   *
   * @param given - Names that the scope has from its beginning: parameters and targets.
   */
  scoped(statements: readonly Statement[], given: readonly string[] = []): ScopedBody {
    const isKnownOutside = (name: string): boolean => given.includes(name) || this.#outerNames.some((names) => names.has(name));
    const { used, local } = namesOf(statements, isKnownOutside);
    this.#outerNames.push(new Set([...used, ...given]));
    const run = this.body(statements);
    this.#outerNames.pop();
    return { run, localNames: local };
  }

  /** Compiles statements that run in the current scope, one after the other up to a `break` or `continue`. */
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
      case "data":
        return (_, output) => output.write(node.text);
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
          return isTruthy(test(scope)) ? body(scope, output) : otherwise(scope, output);
        };
      }
      case "for":
        return this.#for(node);
      case "break":
      case "continue":
        return () => node.kind;
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
          const bodyScope = scope.child(body.localNames);
          const given = values.map((value) => value(scope));
          for (const [index, assign] of targets.entries()) assign(bodyScope, given[index] as TemplateValue);
          return body.run(bodyScope, output);
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

  /** Compiles a loop. Its body has a scope of its own for each element. */
  #for(node: Statement & { readonly kind: "for" }): Run {
    const [iterable, assign] = [this.expression(node.iterable), this.#target(node.target)];
    const body = this.scoped(node.body, [...targetNames(node.target), "loop"]);
    const otherwise = node.otherwise.length === 0 ? undefined : this.scoped(node.otherwise);
    const test = node.test === undefined ? undefined : this.expression(node.test);
    const loop: CompiledFor = { assign, body, otherwise, test, isRecursive: node.isRecursive, usesLoop: node.usesLoop };
    return (scope, output) => {
      scope.meter.charge(1);
      return runFor(loop, scope, output, iterable(scope), 0);
    };
  }

  /** Compiles the assignment to a target. */
  #target(target: Target): Assign {
    switch (target.kind) {
      case "name":
        return (scope, value) => scope.set(target.name, value);
      case "member":
        return (scope, value) => {
          const namespace = scope.get(target.name);
          if (!(namespace instanceof Namespace)) throw new TemplateFailure("cannot assign attribute on non-namespace object");
          namespace.set(target.attribute, value);
        };
      case "tuple": {
        const items = target.items.map((item) => this.#target(item));
        return (scope, value) => {
          const values = itemsOf(scope.meter, value);
          if (values.length !== items.length) {
            if (values.length > items.length) return valueError(`too many values to unpack (expected ${items.length})`);
            return valueError(`not enough values to unpack (expected ${items.length}, got ${values.length})`);
          }
          for (const [index, assign] of items.entries()) assign(scope, values[index] as TemplateValue);
        };
      }
      default:
        return target satisfies never;
    }
  }

  /** Compiles `{% call macro() %}`: calls the macro with the body of the block as its keyword argument `caller`. */
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
      const withCaller = new Map([...keywords, ["caller", macro(scope)] as const]);
      const result = method === undefined ? callValue(meter, self, args, withCaller) : callMethod(meter, self, method, args, withCaller);
      return output.write(toText(meter, result));
    };
  }

  /**
   * Compiles a macro to a function of the scope in which it is defined.
   *
   * @param name - Name of the macro; null for the body of a call block.
   */
  #macro(definition: MacroDefinition, name: string | null): (scope: Scope) => Macro {
    const { parameters } = definition;
    const body = this.scoped(definition.body, [...parameters.map((parameter) => parameter.name), "caller", "kwargs", "varargs"]);
    const defaults = parameters.map(({ otherwise }) => (otherwise === undefined ? undefined : this.expression(otherwise)));
    return (scope) => new Macro(definition, name, defaults, body, scope);
  }
}

/** Compiled `for`. */
interface CompiledFor {
  readonly assign: Assign;
  /** Condition of the elements; undefined for every element. */
  readonly test: Evaluate | undefined;
  readonly body: ScopedBody;
  /** Body after `else`, which runs for a loop without elements. */
  readonly otherwise: ScopedBody | undefined;
  readonly isRecursive: boolean;
  /** Whether the variable `loop` may be read; also true if the loop is recursive. */
  readonly usesLoop: boolean;
}

/**
 * Runs a `for` over the elements of a value.
 *
 * @param depth - Number of recursive calls of the loop around this run.
 */
function runFor(compiled: CompiledFor, scope: Scope, output: Output, iterable: TemplateValue, depth: number): Exit {
  const { assign, body, otherwise, test } = compiled;
  const { meter } = scope;
  const allElements = iterateValue(meter, iterable);
  const elements = test === undefined ? allElements : filtered(scope, allElements, assign, test);
  /** Renders the loop over other elements, for a call of `loop` in its body. */
  const renderAgain = (inner: TemplateValue, innerDepth: number): string => {
    const innerOutput = new Output(meter);
    runFor(compiled, scope, innerOutput, inner, innerDepth);
    return innerOutput.text;
  };
  let loop: Loop | undefined;
  if (compiled.usesLoop) {
    const size = test === undefined ? valueLength(meter, iterable) : undefined;
    loop = new Loop(elements, size, depth, compiled.isRecursive ? renderAgain : undefined);
  }
  // As in Jinja, an element whose iteration ends in `continue` or `break` does not count for `else`.
  let isEmpty = true;
  for (;;) {
    const element = loop === undefined ? nextOf(elements) : loop.advance();
    if (element === undefined) break;
    const bodyScope = scope.child(body.localNames);
    if (loop !== undefined) bodyScope.set("loop", loop);
    assign(bodyScope, element);
    const exit = body.run(bodyScope, output);
    if (exit === "break") break;
    if (exit === undefined) isEmpty = false;
  }
  return isEmpty ? otherwise?.run(scope.child(otherwise.localNames), output) : undefined;
}

/** Returns the next element of an iterator; undefined at the end. */
function nextOf(elements: Iterator<TemplateValue>): TemplateValue | undefined {
  const next = elements.next();
  return next.done === true ? undefined : next.value;
}

/** Yields the elements for which the condition of a loop holds, each tested just before its turn. */
function* filtered(
  scope: Scope,
  elements: Iterator<TemplateValue>,
  assign: Assign,
  test: Evaluate,
): Generator<TemplateValue, void, undefined> {
  for (let next = elements.next(); next.done !== true; next = elements.next()) {
    const testScope = scope.child();
    assign(testScope, next.value);
    if (isTruthy(test(testScope))) yield next.value;
  }
}

/** Returns the variables that an assignment to a target sets. */
function targetNames(target: Target): string[] {
  if (target.kind === "tuple") return target.items.flatMap(targetNames);
  return target.kind === "name" ? [target.name] : [];
}
