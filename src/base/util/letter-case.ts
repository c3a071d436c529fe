/** Conversion between the names of the wire and files, snake_case, and the names of options, camelCase. */

/** Camel-case form of a snake_case name: `learning_rate` → `learningRate`. */
export type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;

/** Converts snake_case to camelCase: `learning_rate` → `learningRate`. */
export function camelCase<Name extends string>(name: Name): CamelCase<Name> {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()) as CamelCase<Name>;
}

/** Converts camelCase to snake_case: `learningRate` → `learning_rate`. */
export function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
