/**
 * Grammar of the objects that a schema describes: members in the order of `properties`, then other required members, then additional
 * members.
 */
import { oneOfThese, choiceOf, EMPTY, MATCHES_NOTHING, optional, repeat, sequence, text, type Expression } from "../../expression.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { finiteValues } from "./finite.ts";
import { KeyRules } from "./keys.ts";
import { toCount, toNames, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";
import { codePointAt, getOrInsert, itemAt } from "../../../../base/util/values.ts";

/** Named member of an object. */
interface Member {
  /** Key as JSON text. */
  readonly key: string;
  /** Text after the key: the colon and the value. */
  readonly value: Expression;
  readonly isRequired: boolean;
}

/** Bounds of the number of members. */
interface Counts {
  readonly min: number;
  readonly max: number;
}

/** Maximum number of states: positions between members times member counts that are distinguished. */
const MAX_COUNTED = 5000;

/** Converts a `propertyNames` that allows finitely many names to optional members with these names. */
function withListedNames(schema: SchemaObject, compiler: SchemaCompiler, path: string): SchemaObject {
  const { propertyNames, additionalProperties, patternProperties, properties, ...rest } = schema;
  if (propertyNames === undefined || patternProperties !== undefined || typeof propertyNames === "boolean") return schema;
  const names = finiteValues(toSchema(propertyNames, "propertyNames", path), compiler, `${path}/propertyNames`);
  if (names === null) return schema;
  const own = toSchemaMap(properties, "properties", path);
  const value = toSchema(additionalProperties ?? true, "additionalProperties", path);
  const listed = names.filter((name) => typeof name === "string").map((name): [string, Schema] => [name, own.get(name) ?? value]);
  return { ...rest, properties: Object.fromEntries(listed), additionalProperties: false };
}

/** Number of grammar states that count members. With an upper bound all counts are distinguished, otherwise those up to the lower bound. */
function statesOf(members: readonly Member[], { min, max }: Counts): number {
  return members.length === 0 ? 1 : (members.length + 1) * ((max === Infinity ? min : max) + 1);
}

/**
 * Returns the bounds of the number of members that the grammar enforces; bounds that cannot be counted are recorded with `relax`. Null if
 * no number of members is within the bounds.
 */
function countsOf(
  schema: SchemaObject,
  members: readonly Member[],
  mayHaveMore: boolean,
  compiler: SchemaCompiler,
  path: string,
): Counts | null {
  const min = toCount(schema, "minProperties", path) ?? 0;
  const max = toCount(schema, "maxProperties", path) ?? Infinity;
  const largest = mayHaveMore ? Infinity : members.length;
  if (min > Math.min(max, largest)) return null;
  const required = members.filter((member) => member.isRequired).length;
  let counted: Counts = { min: min > required ? min : 0, max: max < largest ? max : Infinity };
  // Duplicate keys count as one member.
  if (counted.min > 1 && mayHaveMore) compiler.relax("minProperties", path, "a key may come twice and counts once");
  if (counted.max !== Infinity && statesOf(members, counted) > MAX_COUNTED) {
    compiler.relax("maxProperties", path, "there are too many members to count");
    counted = { ...counted, max: Infinity };
  }
  if (statesOf(members, counted) > MAX_COUNTED) {
    compiler.relax("minProperties", path, "there are too many members to count");
    counted = { ...counted, min: 0 };
  }
  return counted;
}

/** A key and everything that may follow it. */
interface Keyed {
  readonly key: string;
  readonly rest: Expression;
}

/** Number of optional members with keys in one trie; the trie merges alternatives with a common prefix. */
const BLOCK_SIZE = 64;

/** Returns the expression of the keys from a position on, each followed by its `rest`. No key is a prefix of another. */
function keyTrie(entries: readonly Keyed[], from: number): Expression {
  const [first] = entries;
  if (first === undefined) return MATCHES_NOTHING;
  if (entries.length === 1) return sequence(text(first.key.slice(from)), first.rest);
  let to = from;
  while (entries.every(({ key }) => key[to] === first.key[to])) to++;
  // A character of two UTF-16 units is not split.
  if (/[\ud800-\udbff]/.test(first.key[to - 1] ?? "")) to--;
  const byNext = new Map<string, Keyed[]>();
  for (const entry of entries) {
    const next = String.fromCodePoint(codePointAt(entry.key, to));
    getOrInsert(byNext, next, () => []).push(entry);
  }
  return sequence(text(first.key.slice(from, to)), choiceOf([...byNext.values()].map((same) => keyTrie(same, to))));
}

/**
 * Returns the expression of the members of an object, separated by commas. It is built from the last member to the first, for each number
 * of members so far that has to be distinguished.
 *
 * @param more - Additional member; null if there may be none.
 */
function membersOf(members: readonly Member[], more: Expression | null, { min, max }: Counts, compiler: SchemaCompiler): Expression {
  const comma = sequence(text(","), compiler.parts.whitespace);
  // Higher counts are equivalent: with an upper bound all counts are distinguished, otherwise only counts below the lower bound.
  const top = max === Infinity ? min : max;
  const states = Array.from({ length: members.length === 0 ? 1 : top + 1 }, (_, count) => count);
  const nextCount = (count: number): number => Math.min(count + 1, top);

  /** Members that may follow, at least one, by the number of members so far. */
  let next = states.map((count): Expression => {
    if (more === null || count >= max) return MATCHES_NOTHING;
    return sequence(more, repeat(sequence(comma, more), Math.max(0, min - count - 1), max === Infinity ? null : max - count - 1));
  });
  /** Whether no required member follows, so that the object may end. */
  let isEnd = true;
  /** Adds the comma before the members that follow; they are optional if the object may end. */
  const following = (tail: readonly Expression[], ends: boolean): Expression[] =>
    tail.map((rest, count) =>
      compiler.rule(() => {
        const others = sequence(comma, rest);
        return ends && count >= min ? optional(others) : others;
      }),
    );
  /** Members of the current block, which is used only if counts are not distinguished, and the members after the block. */
  let block: Keyed[] = [];
  let beyond = itemAt(next, 0);
  for (const [at, { key, value, isRequired }] of [...members.entries()].reverse()) {
    const [tail, after] = [next, following(next, isEnd)];
    next = tail.map((skipped, count) =>
      compiler.rule(() => {
        const one = count >= max ? MATCHES_NOTHING : sequence(text(key), value, itemAt(after, nextCount(count)));
        return isRequired ? one : oneOfThese(one, skipped);
      }),
    );
    isEnd &&= !isRequired;
    if (isRequired) block = [];
    else block.push({ key, rest: sequence(value, itemAt(after, 0)) });
    if (at % BLOCK_SIZE !== 0) continue;
    if (block.length === BLOCK_SIZE && top === 0) {
      const [entries, others] = [block, beyond];
      next = [compiler.rule(() => oneOfThese(keyTrie(entries, 0), others))];
    }
    [block, beyond] = [[], itemAt(next, 0)];
  }
  const all = itemAt(next, 0);
  return isEnd && min === 0 ? (all === MATCHES_NOTHING ? EMPTY : optional(all)) : all;
}

/** Returns the expression of the objects that a schema describes; keywords that are not fully enforced are recorded with `relax`. */
export function objectOf(given: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const schema = withListedNames(given, compiler, path);
  const properties = toSchemaMap(schema["properties"], "properties", path);
  const required = toNames(schema["required"], "required", path);
  const isRequired = new Set(required);
  const names = [...new Set([...properties.keys(), ...required])];
  const { whitespace } = compiler.parts;
  const valueOf = (value: Schema, at: string): Expression =>
    compiler.rule(() => sequence(whitespace, text(":"), whitespace, compiler.compile(value, `${path}/${at}`), whitespace));

  const keys = new KeyRules(schema, compiler, path);
  const members = names.flatMap((name): Member[] => {
    const value = keys.schemaOf(name, properties.get(name));
    if (value === false && !isRequired.has(name)) return [];
    return [{ key: JSON.stringify(name), value: valueOf(value, `properties/${name}`), isRequired: isRequired.has(name) }];
  });
  const further = keys
    .further(names)
    .map((each) => compiler.rule(() => sequence(each.expression, valueOf(each.schema, "additionalProperties"))));
  const more = further.length === 0 ? null : choiceOf(further);
  const counts = countsOf(schema, members, more !== null, compiler, path);
  if (counts === null) return MATCHES_NOTHING;
  return sequence(text("{"), whitespace, membersOf(members, more, counts, compiler), text("}"));
}
