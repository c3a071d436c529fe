/** Syntax tree of a template. */

import type { Arithmetic } from "./numbers.ts";
import type { TemplateValue } from "./values.ts";

/** Arguments of a call. */
export interface Arguments {
  readonly positional: readonly TemplateExpression[];
  readonly named: readonly { readonly name: string; readonly value: TemplateExpression }[];
  /** `*rest`. */
  readonly rest: TemplateExpression | undefined;
  /** `**named`. */
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
  | { readonly kind: "concat"; readonly parts: readonly TemplateExpression[] }
  | {
      readonly kind: "compare";
      readonly first: TemplateExpression;
      readonly rest: readonly { readonly operator: ComparisonOperator; readonly value: TemplateExpression }[];
    }
  | { readonly kind: "attribute"; readonly value: TemplateExpression; readonly name: string }
  | { readonly kind: "item"; readonly value: TemplateExpression; readonly key: TemplateExpression }
  | {
      readonly kind: "slice";
      readonly value: TemplateExpression;
      readonly start: TemplateExpression | undefined;
      readonly stop: TemplateExpression | undefined;
      readonly step: TemplateExpression | undefined;
    }
  | { readonly kind: "call"; readonly called: TemplateExpression; readonly args: Arguments }
  | { readonly kind: "filter"; readonly name: string; readonly value: TemplateExpression | undefined; readonly args: Arguments }
  | { readonly kind: "test"; readonly name: string; readonly value: TemplateExpression; readonly args: Arguments };

/** Target of an assignment. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "member"; readonly name: string; readonly attribute: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] };

/** Parameters and body of a macro or of the body of a call block. */
export interface Signature {
  readonly name: string;
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
      readonly test: TemplateExpression | undefined;
      readonly isRecursive: boolean;
      readonly usesLoop: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly kind: "break" | "continue" }
  | { readonly kind: "set"; readonly target: Target; readonly value: TemplateExpression }
  | {
      readonly kind: "set-block";
      readonly target: Target;
      readonly filter: TemplateExpression | undefined;
      readonly body: readonly Statement[];
    }
  | { readonly kind: "macro"; readonly macro: Signature }
  | { readonly kind: "call-block"; readonly call: TemplateExpression & { readonly kind: "call" }; readonly caller: Signature }
  | { readonly kind: "filter-block"; readonly filter: TemplateExpression; readonly body: readonly Statement[] }
  | {
      readonly kind: "with";
      readonly targets: readonly Target[];
      readonly values: readonly TemplateExpression[];
      readonly body: readonly Statement[];
    }
  /** `{% generation %}`: marks the text of the assistant. */
  | { readonly kind: "scope"; readonly body: readonly Statement[] };
