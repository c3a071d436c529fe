/** Schemas that a finished text must be validated against, because its grammar allows more than they do. */

/** Schemas, as JSON texts, that a finished text must be validated against. Plain data. */
export type OutputCheck =
  /** Schema of the whole text, or of the arguments of the single forced call. */
  | { readonly kind: "json"; readonly schema: string }
  /** Schemas of the arguments of each call, with the function's name. */
  | { readonly kind: "calls"; readonly schemas: readonly (readonly [name: string, schema: string])[] };

/** Returns the schemas of a check. */
export function schemasOf(check: OutputCheck): readonly string[] {
  return check.kind === "json" ? [check.schema] : check.schemas.map(([, schema]) => schema);
}

/** Validation of the finished choices of one request. */
export interface OutputValidation {
  readonly check: OutputCheck;
  /** Texts of the tokens that end a complete text, by id. */
  readonly endTokens: ReadonlyMap<number, string>;
}
