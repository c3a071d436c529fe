/** Syntax tree of a template. */

import type { Arithmetic } from "./numbers.ts";
import type { Value } from "./values.ts";

/** Arguments of a call. */
export interface Arguments {
  readonly positional: readonly Expression[];
  readonly named: readonly { readonly name: string; readonly value: Expression }[];
  /** `*rest`. */
  readonly rest: Expression | undefined;
  /** `**named`. */
  readonly keywords: Expression | undefined;
}

/** Comparison operators. */
export type Comparison = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** Expression of a template. */
export type Expression =
  | { readonly kind: "constant"; readonly value: Value }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: readonly Expression[] }
  | { readonly kind: "dict"; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: "choice"; readonly test: Expression; readonly value: Expression; readonly otherwise: Expression | undefined }
  | { readonly kind: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | { readonly kind: "not"; readonly value: Expression }
  | { readonly kind: "sign"; readonly operator: "-" | "+"; readonly value: Expression }
  | { readonly kind: "binary"; readonly operator: Arithmetic; readonly left: Expression; readonly right: Expression }
  | { readonly kind: "concat"; readonly parts: readonly Expression[] }
  | {
      readonly kind: "compare";
      readonly first: Expression;
      readonly rest: readonly { readonly operator: Comparison; readonly value: Expression }[];
    }
  | { readonly kind: "attribute"; readonly value: Expression; readonly name: string }
  | { readonly kind: "item"; readonly value: Expression; readonly key: Expression }
  | {
      readonly kind: "slice";
      readonly value: Expression;
      readonly start: Expression | undefined;
      readonly stop: Expression | undefined;
      readonly step: Expression | undefined;
    }
  | { readonly kind: "call"; readonly called: Expression; readonly args: Arguments }
  | { readonly kind: "filter"; readonly name: string; readonly value: Expression | undefined; readonly args: Arguments }
  | { readonly kind: "test"; readonly name: string; readonly value: Expression; readonly args: Arguments };

/** Target of an assignment. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "member"; readonly name: string; readonly attribute: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] };

/** Parameters and body of a macro or of the body of a call block. */
export interface Signature {
  readonly name: string;
  readonly parameters: readonly { readonly name: string; readonly otherwise: Expression | undefined }[];
  readonly body: readonly Statement[];
  /** Names that the body and its nested bodies read. */
  readonly reads: ReadonlySet<string>;
}

/** Statement of a template. */
export type Statement =
  | { readonly kind: "data"; readonly text: string }
  | { readonly kind: "print"; readonly value: Expression }
  | { readonly kind: "if"; readonly test: Expression; readonly body: readonly Statement[]; readonly otherwise: readonly Statement[] }
  | {
      readonly kind: "for";
      readonly target: Target;
      readonly iterable: Expression;
      readonly test: Expression | undefined;
      readonly isRecursive: boolean;
      readonly usesLoop: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly kind: "break" | "continue" }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | { readonly kind: "set-block"; readonly target: Target; readonly filter: Expression | undefined; readonly body: readonly Statement[] }
  | { readonly kind: "macro"; readonly macro: Signature }
  | { readonly kind: "call-block"; readonly call: Expression & { readonly kind: "call" }; readonly caller: Signature }
  | { readonly kind: "filter-block"; readonly filter: Expression; readonly body: readonly Statement[] }
  | {
      readonly kind: "with";
      readonly targets: readonly Target[];
      readonly values: readonly Expression[];
      readonly body: readonly Statement[];
    }
  /** `{% generation %}`: marks the text of the assistant. */
  | { readonly kind: "scope"; readonly body: readonly Statement[] };
