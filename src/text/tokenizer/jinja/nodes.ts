/** Syntax tree of a template: the parser (`parser.ts`) builds it, and the compiler (`statements.ts`) turns it to functions. */

import type { Arithmetic } from "./numbers.ts";
import type { TemplateValue } from "./values.ts";

/** Arguments of a call, in Python's order: `(positional, named=value, *rest, **keywords)`. */
export interface Arguments {
  readonly positional: readonly TemplateExpression[];
  readonly named: readonly { readonly name: string; readonly value: TemplateExpression }[];
  readonly rest: TemplateExpression | undefined;
  readonly keywords: TemplateExpression | undefined;
}

/** Comparison operators. */
export type ComparisonOperator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** Expression of a template. */
export type TemplateExpression =
  | { readonly kind: "constant"; readonly value: TemplateValue }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: readonly TemplateExpression[] }
  | { readonly kind: "dict"; readonly entries: readonly (readonly [TemplateExpression, TemplateExpression])[] }
  /** `value if test else otherwise`. */
  | {
      readonly kind: "choice";
      readonly test: TemplateExpression;
      readonly value: TemplateExpression;
      readonly otherwise: TemplateExpression | undefined;
    }
  | { readonly kind: "and" | "or"; readonly left: TemplateExpression; readonly right: TemplateExpression }
  | { readonly kind: "not"; readonly value: TemplateExpression }
  | { readonly kind: "sign"; readonly operator: "-" | "+"; readonly value: TemplateExpression }
  | { readonly kind: "binary"; readonly operator: Arithmetic; readonly left: TemplateExpression; readonly right: TemplateExpression }
  /** `a ~ b`. */
  | { readonly kind: "concat"; readonly parts: readonly TemplateExpression[] }
  /** `first < a <= b`: each comparison has the value before it on its left. */
  | {
      readonly kind: "compare";
      readonly first: TemplateExpression;
      readonly rest: readonly { readonly operator: ComparisonOperator; readonly value: TemplateExpression }[];
    }
  | { readonly kind: "attribute"; readonly value: TemplateExpression; readonly name: string }
  /** `value[key]`. */
  | { readonly kind: "item"; readonly value: TemplateExpression; readonly key: TemplateExpression }
  /** `value[start:stop:step]`. */
  | {
      readonly kind: "slice";
      readonly value: TemplateExpression;
      readonly start: TemplateExpression | undefined;
      readonly stop: TemplateExpression | undefined;
      readonly step: TemplateExpression | undefined;
    }
  | { readonly kind: "call"; readonly called: TemplateExpression; readonly args: Arguments }
  /** `value | name(args)`; `value` is undefined for the text of a block. */
  | { readonly kind: "filter"; readonly name: string; readonly value: TemplateExpression | undefined; readonly args: Arguments }
  /** `value is name(args)`. */
  | { readonly kind: "test"; readonly name: string; readonly value: TemplateExpression; readonly args: Arguments };

/** Target of an assignment. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  /** `name.attribute`, an attribute of a namespace. */
  | { readonly kind: "member"; readonly name: string; readonly attribute: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] };

/** Name, parameters and body of a macro; also of the body of a call block, which is the macro `caller`. */
export interface MacroDefinition {
  readonly name: string;
  /** Parameters with their defaults (`otherwise`). */
  readonly parameters: readonly { readonly name: string; readonly otherwise: TemplateExpression | undefined }[];
  readonly body: readonly Statement[];
  /** Names that the body and its nested bodies read. */
  readonly reads: ReadonlySet<string>;
}

/** Statement of a template. */
export type Statement =
  | { readonly kind: "data"; readonly text: string }
  | { readonly kind: "print"; readonly value: TemplateExpression }
  | {
      readonly kind: "if";
      readonly test: TemplateExpression;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | {
      readonly kind: "for";
      readonly target: Target;
      readonly iterable: TemplateExpression;
      /** Condition of the elements: `{% for x in list if test %}`. */
      readonly test: TemplateExpression | undefined;
      readonly isRecursive: boolean;
      /** Whether the variable `loop` may be read. */
      readonly usesLoop: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly kind: "break" | "continue" }
  | { readonly kind: "set"; readonly target: Target; readonly value: TemplateExpression }
  /** `{% set target %}…{% endset %}`. */
  | {
      readonly kind: "set-block";
      readonly target: Target;
      readonly filter: TemplateExpression | undefined;
      readonly body: readonly Statement[];
    }
  | { readonly kind: "macro"; readonly macro: MacroDefinition }
  /** `{% call macro() %}…{% endcall %}`. */
  | { readonly kind: "call-block"; readonly call: TemplateExpression & { readonly kind: "call" }; readonly caller: MacroDefinition }
  | { readonly kind: "filter-block"; readonly filter: TemplateExpression; readonly body: readonly Statement[] }
  | {
      readonly kind: "with";
      readonly targets: readonly Target[];
      readonly values: readonly TemplateExpression[];
      readonly body: readonly Statement[];
    }
  /** `{% generation %}`, which marks the text of the assistant. The rendering only gives it a scope. */
  | { readonly kind: "scope"; readonly body: readonly Statement[] };
