/** Compiler of expressions to functions that compute the value in a scope; the compiler of statements (`statements.ts`) extends it. */

import { callMethod, callValue, getAttribute, getItem } from "./attributes.ts";
import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import { applyFilter, isFilter } from "./filters.ts";
import { UNSUPPORTED_GLOBALS } from "./globals.ts";
import type { Arguments, ComparisonOperator, TemplateExpression } from "./nodes.ts";
import { applySign } from "./numbers.ts";
import { binary, compareValues, contains, equals, iterateValue, slice } from "./operators.ts";
import { toText } from "./print.ts";
import type { Scope } from "./scope.ts";
import { applyTest, isTest } from "./tests.ts";
import { Dict, type Keywords, NO_KEYWORDS, isTruthy, Tuple, typeName, Undefined, type TemplateValue } from "./values.ts";

/** Computes the value of an expression. */
export type Evaluate = (scope: Scope) => TemplateValue;

/** Values of the arguments of one call. */
interface CallArguments {
  readonly args: readonly TemplateValue[];
  readonly keywords: Keywords;
}

/** Compiles expressions. An unknown filter or test is an error of the template, except in a branch that may not be taken. */
export class ExpressionCompiler {
  /** Number of branches around the expression that is being compiled; with 0 the rendering certainly evaluates it. */
  #branches = 0;

  /** Compiles a branch, which may not be taken at run time. */
  inBranch<T>(compile: () => T): T {
    this.#branches++;
    const compiled = compile();
    this.#branches--;
    return compiled;
  }

  /** Compiles an expression. */
  expression(node: TemplateExpression): Evaluate {
    switch (node.kind) {
      case "constant":
        return () => node.value;
      case "name":
        return variable(node.name);
      case "list":
      case "tuple": {
        const items = node.items.map((item) => this.expression(item));
        const isTuple = node.kind === "tuple";
        return (scope) => {
          scope.meter.charge(items.length);
          const values = items.map((item) => item(scope));
          return isTuple ? new Tuple(values) : values;
        };
      }
      case "dict":
        return this.#dict(node.entries);
      case "choice":
        return this.inBranch(() => this.#choice(node));
      case "and":
      case "or": {
        const [left, right] = [this.expression(node.left), this.expression(node.right)];
        const isAnd = node.kind === "and";
        return (scope) => {
          const value = left(scope);
          return isTruthy(value) === isAnd ? right(scope) : value;
        };
      }
      case "not": {
        const value = this.expression(node.value);
        return (scope) => !isTruthy(value(scope));
      }
      case "sign": {
        const value = this.expression(node.value);
        return (scope) => applySign(node.operator, value(scope));
      }
      case "binary": {
        const [left, right] = [this.expression(node.left), this.expression(node.right)];
        return (scope) => {
          scope.meter.charge(1);
          return binary(scope.meter, node.operator, left(scope), right(scope));
        };
      }
      case "concat": {
        const parts = node.parts.map((part) => this.expression(part));
        return (scope) => scope.meter.chargeResult(scope.meter.join(parts, "", (part) => toText(scope.meter, part(scope))));
      }
      case "compare":
        return this.#compare(node);
      case "attribute": {
        const value = this.expression(node.value);
        return (scope) => getAttribute(scope.meter, value(scope), node.name);
      }
      case "item": {
        const [value, key] = [this.expression(node.value), this.expression(node.key)];
        return (scope) => getItem(scope.meter, value(scope), key(scope));
      }
      case "slice": {
        const value = this.expression(node.value);
        const boundOf = (bound: TemplateExpression | undefined) => (bound === undefined ? () => null : this.expression(bound));
        const [start, stop, step] = [boundOf(node.start), boundOf(node.stop), boundOf(node.step)];
        return (scope) => {
          scope.meter.charge(1);
          return slice(scope.meter, value(scope), start(scope), stop(scope), step(scope));
        };
      }
      case "call":
        return this.#call(node.called, node.args);
      case "filter": {
        if (node.value === undefined) throw new TemplateFailure("A filter needs a value.");
        const value = this.expression(node.value);
        const filter = this.filter(node.name, node.args);
        return (scope) => filter(scope, value(scope));
      }
      case "test": {
        const value = this.expression(node.value);
        const given = this.args(node.args);
        const { name } = node;
        if (!isTest(name) && this.#branches === 0) throw new TemplateFailure(`No test named '${name}'.`);
        if (given === undefined) {
          if (name === "defined") return (scope) => !(value(scope) instanceof Undefined);
          return (scope) => applyTest(scope.meter, name, value(scope), [], NO_KEYWORDS);
        }
        return (scope) => {
          const tested = value(scope);
          const { args, keywords } = given(scope);
          return applyTest(scope.meter, name, tested, args, keywords);
        };
      }
      default:
        return node satisfies never;
    }
  }

  /** Compiles a filter to a function of its value. */
  filter(name: string, node: Arguments): (scope: Scope, value: TemplateValue) => TemplateValue {
    if (!isFilter(name) && this.#branches === 0) throw new TemplateFailure(`No filter named '${name}'.`);
    const given = this.args(node);
    if (given === undefined) return (scope, value) => applyFilter(scope.meter, name, value, [], NO_KEYWORDS);
    return (scope, value) => {
      const { args, keywords } = given(scope);
      return applyFilter(scope.meter, name, value, args, keywords);
    };
  }

  /** Compiles a chain of filters around the text of a block. */
  filterChain(node: TemplateExpression): (scope: Scope, value: TemplateValue) => TemplateValue {
    if (node.kind !== "filter") throw new TemplateFailure("Expected a filter.");
    const filter = this.filter(node.name, node.args);
    if (node.value === undefined) return filter;
    const inner = this.filterChain(node.value);
    return (scope, value) => filter(scope, inner(scope, value));
  }

  #dict(nodes: readonly (readonly [TemplateExpression, TemplateExpression])[]): Evaluate {
    const entries = nodes.map(([key, value]) => [this.expression(key), this.expression(value)] as const);
    return (scope) => {
      scope.meter.charge(entries.length);
      const dict = new Dict();
      for (const [key, value] of entries) dict.set(key(scope), value(scope));
      return dict;
    };
  }

  /** Compiles `value if test else otherwise`. */
  #choice(node: TemplateExpression & { readonly kind: "choice" }): Evaluate {
    const [test, value] = [this.expression(node.test), this.expression(node.value)];
    const otherwise =
      node.otherwise === undefined
        ? () => new Undefined("the inline if-expression evaluated to false and no else section was defined.")
        : this.expression(node.otherwise);
    return (scope) => (isTruthy(test(scope)) ? value(scope) : otherwise(scope));
  }

  /** Compiles a chain of comparisons, which ends at the first that does not hold. */
  #compare(node: TemplateExpression & { readonly kind: "compare" }): Evaluate {
    const first = this.expression(node.first);
    const rest = node.rest.map(({ operator, value }) => ({ holds: COMPARISONS[operator], value: this.expression(value) }));
    return (scope) => {
      scope.meter.charge(1);
      let left = first(scope);
      for (const { holds, value } of rest) {
        const right = value(scope);
        if (!holds(scope, left, right)) return false;
        left = right;
      }
      return true;
    };
  }

  /** Compiles a call. A call of an attribute is a method call, which needs no value for the method. */
  #call(called: TemplateExpression, argumentNodes: Arguments): Evaluate {
    const given = this.args(argumentNodes) ?? (() => ({ args: [], keywords: NO_KEYWORDS }));
    if (called.kind === "attribute") {
      const value = this.expression(called.value);
      const { name } = called;
      return (scope) => {
        const self = value(scope);
        if (self instanceof Undefined) self.fail();
        const { args, keywords } = given(scope);
        return callMethod(scope.meter, self, name, args, keywords);
      };
    }
    const callee = this.expression(called);
    return (scope) => {
      const self = callee(scope);
      const { args, keywords } = given(scope);
      return callValue(scope.meter, self, args, keywords);
    };
  }

  /** Compiles the arguments of a call; undefined if it has none. */
  args(node: Arguments): ((scope: Scope) => CallArguments) | undefined {
    const positional = node.positional.map((arg) => this.expression(arg));
    const named = node.named.map(({ name, value }) => ({ name, value: this.expression(value) }));
    const rest = node.rest === undefined ? undefined : this.expression(node.rest);
    const dict = node.keywords === undefined ? undefined : this.expression(node.keywords);
    if (rest === undefined && dict === undefined && named.length === 0) {
      if (positional.length === 0) return undefined;
      return (scope) => ({ args: positional.map((arg) => arg(scope)), keywords: NO_KEYWORDS });
    }
    return (scope) => {
      const args = positional.map((arg) => arg(scope));
      if (rest !== undefined) args.push(...iterateValue(scope.meter, rest(scope)));
      const keywords = new Map<string, TemplateValue>();
      for (const { name, value } of named) addKeyword(keywords, name, value(scope));
      const given = dict?.(scope);
      if (given !== undefined) {
        if (!(given instanceof Dict)) return typeError(`argument after ** must be a mapping, not ${typeName(given)}`);
        for (const [name, value] of given.entries()) {
          scope.meter.charge(1);
          addKeyword(keywords, typeof name === "string" ? name : typeError("keywords must be strings"), value);
        }
      }
      return { args, keywords };
    };
  }
}

/** Adds a keyword argument; fails for one that is given already. */
function addKeyword(keywords: Map<string, TemplateValue>, name: string, value: TemplateValue): void {
  if (keywords.has(name)) typeError(`got multiple values for keyword argument '${name}'`);
  keywords.set(name, value);
}

/** Compiles the use of a name. */
function variable(name: string): Evaluate {
  const isUnsupported = UNSUPPORTED_GLOBALS.has(name);
  return (scope) => {
    const value = scope.get(name);
    if (value !== undefined) return value;
    return isUnsupported ? unsupported(`the global \`${name}\``) : new Undefined(`'${name}' is undefined`);
  };
}

const COMPARISONS: Readonly<Record<ComparisonOperator, (scope: Scope, left: TemplateValue, right: TemplateValue) => boolean>> = {
  "==": ({ meter }, left, right) => equals(meter, left, right),
  "!=": ({ meter }, left, right) => !equals(meter, left, right),
  in: ({ meter }, left, right) => contains(meter, right, left),
  "not in": ({ meter }, left, right) => !contains(meter, right, left),
  "<": ({ meter }, left, right) => compareValues(meter, "<", left, right) < 0,
  "<=": ({ meter }, left, right) => compareValues(meter, "<=", left, right) <= 0,
  ">": ({ meter }, left, right) => compareValues(meter, ">", left, right) > 0,
  ">=": ({ meter }, left, right) => compareValues(meter, ">=", left, right) >= 0,
};
