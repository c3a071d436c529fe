/** Name of a field in camelCase. */
export type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<CamelCase<Rest>>}` : Name;

/** Converts snake_case to camelCase: `max_tokens` → `maxTokens`. */
export function camelCase<Name extends string>(name: Name): CamelCase<Name> {
  return name.replaceAll(/_(\w)/gu, (_, letter: string) => letter.toUpperCase()) as CamelCase<Name>;
}
