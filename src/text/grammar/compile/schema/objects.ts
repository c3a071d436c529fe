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
  const declared = toSchemaMap(properties, "properties", path);
  const additional = toSchema(additionalProperties ?? true, "additionalProperties", path);
  const members = names
    .filter((name) => typeof name === "string")
    .map((name): [string, Schema] => [name, declared.get(name) ?? additional]);
  return { ...rest, properties: Object.fromEntries(members), additionalProperties: false };
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
  { mayHaveMore }: { readonly mayHaveMore: boolean },
  compiler: SchemaCompiler,
  path: string,
): Counts | null {
  const min = toCount(schema, "minProperties", path) ?? 0;
  const max = toCount(schema, "maxProperties", path) ?? Infinity;
  const maxMembers = mayHaveMore ? Infinity : members.length;
  if (min > Math.min(max, maxMembers)) return null;
  const requiredCount = members.filter((member) => member.isRequired).length;
  // Bounds that hold for every object of these members need not be counted.
  let counted: Counts = { min: min > requiredCount ? min : 0, max: max < maxMembers ? max : Infinity };
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

/** Key of a member as JSON text, with the expression of all text that may follow it. */
interface KeyWithContinuation {
  readonly key: string;
  readonly continuation: Expression;
}

/** Number of optional members with keys in one trie; the trie merges alternatives with a common prefix. */
const BLOCK_SIZE = 64;

/** Returns the expression of the keys from the position `start` on, each with its continuation. No key is a prefix of another. */
function keyTrie(entries: readonly KeyWithContinuation[], start: number): Expression {
  const [first] = entries;
  if (first === undefined) return MATCHES_NOTHING;
  if (entries.length === 1) return sequence(text(first.key.slice(start)), first.continuation);
  let sharedEnd = start;
  while (entries.every(({ key }) => key[sharedEnd] === first.key[sharedEnd])) sharedEnd++;
  // A character of two UTF-16 units is not split.
  if (/[\ud800-\udbff]/.test(first.key[sharedEnd - 1] ?? "")) sharedEnd--;
  const byNextCharacter = new Map<string, KeyWithContinuation[]>();
  for (const entry of entries) {
    const character = String.fromCodePoint(codePointAt(entry.key, sharedEnd));
    getOrInsert(byNextCharacter, character, () => []).push(entry);
  }
  const branches = [...byNextCharacter.values()].map((group) => keyTrie(group, sharedEnd));
  return sequence(text(first.key.slice(start, sharedEnd)), choiceOf(branches));
}

/**
 * Returns the expression of the members of an object, separated by commas. It is built from the last member to the first, for each number
 * of members so far that has to be distinguished.
 *
 * @param additional - Additional member; null if there may be none.
 */
function membersOf(members: readonly Member[], additional: Expression | null, { min, max }: Counts, compiler: SchemaCompiler): Expression {
  const comma = sequence(text(","), compiler.parts.whitespace);
  // Higher counts are equivalent: with an upper bound all counts are distinguished, otherwise only counts below the lower bound.
  const topCount = max === Infinity ? min : max;
  const counts = Array.from({ length: members.length === 0 ? 1 : topCount + 1 }, (_, count) => count);

  /** Members from a position on, at least one, by the number of members before; at first the additional members. */
  let following = counts.map((count): Expression => {
    if (additional === null || count >= max) return MATCHES_NOTHING;
    const maxMore = max === Infinity ? null : max - count - 1;
    return sequence(additional, repeat(sequence(comma, additional), Math.max(0, min - count - 1), maxMore));
  });
  /** Whether no required member follows, so that the object may end. */
  let mayEnd = true;
  /** Members of the current block. Used only if counts are not distinguished. */
  let block: KeyWithContinuation[] = [];
  /** Members after the current block. */
  let afterBlock = itemAt(following, 0);
  for (const [at, { key, value, isRequired }] of [...members.entries()].reverse()) {
    const [skipped, canEndHere] = [following, mayEnd];
    // The following members with the comma before them; they are optional if the object may end.
    const withComma = skipped.map((next, count) =>
      compiler.rule(() => {
        const others = sequence(comma, next);
        return canEndHere && count >= min ? optional(others) : others;
      }),
    );
    following = skipped.map((withoutMember, count) =>
      compiler.rule(() => {
        const nextCount = Math.min(count + 1, topCount);
        const withMember = count >= max ? MATCHES_NOTHING : sequence(text(key), value, itemAt(withComma, nextCount));
        return isRequired ? withMember : oneOfThese(withMember, withoutMember);
      }),
    );
    mayEnd &&= !isRequired;
    if (isRequired) block = [];
    else block.push({ key, continuation: sequence(value, itemAt(withComma, 0)) });
    if (at % BLOCK_SIZE !== 0) continue;
    if (block.length === BLOCK_SIZE && topCount === 0) {
      const [entries, others] = [block, afterBlock];
      following = [compiler.rule(() => oneOfThese(keyTrie(entries, 0), others))];
    }
    block = [];
    afterBlock = itemAt(following, 0);
  }
  const all = itemAt(following, 0);
  if (!mayEnd || min > 0) return all;
  return all === MATCHES_NOTHING ? EMPTY : optional(all);
}

/** Returns the expression of the objects that a schema describes; keywords that are not fully enforced are recorded with `relax`. */
export function objectOf(given: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const schema = withListedNames(given, compiler, path);
  const properties = toSchemaMap(schema["properties"], "properties", path);
  const required = new Set(toNames(schema["required"], "required", path));
  const names = [...new Set([...properties.keys(), ...required])];
  const { whitespace } = compiler.parts;
  /** Returns the text after a key: the colon and the value. */
  const valueOf = (value: Schema, place: string): Expression =>
    compiler.rule(() => sequence(whitespace, text(":"), whitespace, compiler.compile(value, `${path}/${place}`), whitespace));

  const keys = new KeyRules(schema, compiler, path);
  const members = names.flatMap((name): Member[] => {
    const value = keys.schemaOf(name, properties.get(name));
    const isRequired = required.has(name);
    if (value === false && !isRequired) return [];
    return [{ key: JSON.stringify(name), value: valueOf(value, `properties/${name}`), isRequired }];
  });
  const additionalMembers = keys
    .additional(names)
    .map((each) => compiler.rule(() => sequence(each.expression, valueOf(each.schema, "additionalProperties"))));
  const additional = additionalMembers.length === 0 ? null : choiceOf(additionalMembers);
  const counts = countsOf(schema, members, { mayHaveMore: additional !== null }, compiler, path);
  if (counts === null) return MATCHES_NOTHING;
  return sequence(text("{"), whitespace, membersOf(members, additional, counts, compiler), text("}"));
}
