/**
 * Grammar of the objects that a schema describes: members in the order of `properties`, then other required members, then additional
 * members.
 */
import { choice, choiceOf, EMPTY, MATCHES_NOTHING, optional, repeat, sequence, text, type Expression } from "../../expression.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { finiteValues } from "./finite.ts";
import { KeyRules } from "./keys.ts";
import { toCount, toNames, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";
import { codePointAt, getOrInsert, itemAt } from "../../../../base/util/values.ts";

/** Named member of an object. */
interface Member {
  /** Key as JSON text, quotes included. */
  readonly key: string;
  /** Matches the text after the key: the colon, the value and white space. */
  readonly afterKey: Expression;
  readonly isRequired: boolean;
}

/** Bounds of the number of members; `max` may be infinite. */
interface Bounds {
  readonly min: number;
  readonly max: number;
}

/** Bounds that every number of members meets. */
const UNBOUNDED: Bounds = { min: 0, max: Infinity };

/** Maximum number of grammar states that count members, see {@link countingStates}. */
const MAX_COUNTING_STATES = 5000;

/**
 * Returns an equivalent schema in which a `propertyNames` that allows finitely many names is replaced by optional members with these names.
 * Returns other schemas unchanged.
 */
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

/**
 * Returns the number of member counts that the grammar distinguishes. With an upper bound these are the counts from 0 to `max`; otherwise
 * the counts from 0 to `min`, of which the last stands for all higher counts. Without named members, the repetition of additional members
 * enforces the bounds, and the only count is 0.
 */
function distinguishedCounts(members: readonly Member[], { min, max }: Bounds): number {
  if (members.length === 0) return 1;
  return (max === Infinity ? min : max) + 1;
}

/** Returns the number of grammar states that count members: one for each position between members and each distinguished count. */
function countingStates(members: readonly Member[], bounds: Bounds): number {
  return (members.length + 1) * distinguishedCounts(members, bounds);
}

/**
 * Returns the bounds of the number of members that the grammar enforces; null if the schema allows no number of members. Leaves out a bound
 * that every object of these members meets. Also leaves out a bound that takes too many states, and records it with `relax`.
 */
function enforcedBounds(
  schema: SchemaObject,
  members: readonly Member[],
  { allowsAdditional }: { readonly allowsAdditional: boolean },
  compiler: SchemaCompiler,
  path: string,
): Bounds | null {
  const min = toCount(schema, "minProperties", path) ?? 0;
  const max = toCount(schema, "maxProperties", path) ?? Infinity;
  const maxMembers = allowsAdditional ? Infinity : members.length;
  if (min > Math.min(max, maxMembers)) return null;
  const requiredCount = members.filter((member) => member.isRequired).length;
  let bounds: Bounds = { min: min > requiredCount ? min : 0, max: max < maxMembers ? max : Infinity };
  // The grammar counts a repeated key twice, the validation once. A lower bound of 1 is met all the same: any member meets it.
  if (bounds.min > 1 && allowsAdditional) compiler.relax("minProperties", path, "a key may come twice and counts once");
  if (bounds.max !== Infinity && countingStates(members, bounds) > MAX_COUNTING_STATES) {
    compiler.relax("maxProperties", path, "there are too many members to count");
    bounds = { ...bounds, max: Infinity };
  }
  if (countingStates(members, bounds) > MAX_COUNTING_STATES) {
    compiler.relax("minProperties", path, "there are too many members to count");
    bounds = { ...bounds, min: 0 };
  }
  return bounds;
}

/** Returns the expression of the comma between two members. */
function commaOf(compiler: SchemaCompiler): Expression {
  return sequence(text(","), compiler.parts.whitespace);
}

/**
 * Returns the expression of at least one additional member.
 *
 * @param additional - Expression of one additional member; null if the schema allows none.
 * @param count - Number of members before.
 */
function additionalMembers(additional: Expression | null, { min, max }: Bounds, count: number, compiler: SchemaCompiler): Expression {
  if (additional === null || count >= max) return MATCHES_NOTHING;
  const maxOthers = max === Infinity ? null : max - count - 1;
  return sequence(additional, repeat(sequence(commaOf(compiler), additional), Math.max(0, min - count - 1), maxOthers));
}

/**
 * Adds a rule for the text after a member: a comma and the following members.
 *
 * @param following - Expression of the following members, at least one.
 * @param options - `canEnd`: whether the object may also end after the member.
 */
function afterMemberRule(following: Expression, { canEnd }: { readonly canEnd: boolean }, compiler: SchemaCompiler): Expression {
  return compiler.rule(() => {
    const others = sequence(commaOf(compiler), following);
    return canEnd ? optional(others) : others;
  });
}

/** Key of a member as JSON text, with the expression of all text that may follow it. */
interface KeyWithContinuation {
  readonly key: string;
  readonly continuation: Expression;
}

/**
 * Number of members in a block. If all members of a block are optional, they are matched through one trie of their keys, in which keys with
 * a common prefix share states.
 */
const BLOCK_SIZE = 64;

/**
 * Returns the expression of keys with their continuations, in which keys share common prefixes. No key may be a prefix of another.
 *
 * @param start - Length of the prefix of all keys that is already matched, in UTF-16 units.
 */
function keyTrie(entries: readonly KeyWithContinuation[], start: number): Expression {
  const [first] = entries;
  if (first === undefined) return MATCHES_NOTHING;
  if (entries.length === 1) return sequence(text(first.key.slice(start)), first.continuation);
  let sharedEnd = start;
  while (entries.every(({ key }) => key[sharedEnd] === first.key[sharedEnd])) sharedEnd++;
  // The shared prefix must not end inside of a surrogate pair.
  if (/[\ud800-\udbff]/.test(first.key[sharedEnd - 1] ?? "")) sharedEnd--;
  const byNextCharacter = new Map<string, KeyWithContinuation[]>();
  for (const entry of entries) {
    const character = String.fromCodePoint(codePointAt(entry.key, sharedEnd));
    getOrInsert(byNextCharacter, character, () => []).push(entry);
  }
  const branches = [...byNextCharacter.values()].map((group) => keyTrie(group, sharedEnd));
  return sequence(text(first.key.slice(start, sharedEnd)), choiceOf(branches));
}

/** Returns the expression of at least one member, without bounds; see {@link membersOf}. */
function unboundedMembers(members: readonly Member[], additional: Expression | null, compiler: SchemaCompiler): Expression {
  /** Matches at least one member from the current position on. */
  let following = additionalMembers(additional, UNBOUNDED, 0, compiler);
  /** Whether no required member follows, so that the object may end at the current position. */
  let canEnd = true;
  for (const block of blocksOf(members).reverse()) {
    const afterBlock = following;
    const keys: KeyWithContinuation[] = [];
    for (const { key, afterKey, isRequired } of block.toReversed()) {
      const withoutMember = following;
      const afterMember = afterMemberRule(withoutMember, { canEnd }, compiler);
      following = compiler.rule(() => {
        const withMember = sequence(text(key), afterKey, afterMember);
        return isRequired ? withMember : choice(withMember, withoutMember);
      });
      keys.push({ key, continuation: sequence(afterKey, afterMember) });
      canEnd &&= !isRequired;
    }
    // At the start of a block of optional members, the key decides in one step which of them is the first, without a choice per member.
    if (block.length === BLOCK_SIZE && !block.some(({ isRequired }) => isRequired)) {
      following = compiler.rule(() => choice(keyTrie(keys, 0), afterBlock));
    }
  }
  return following;
}

/** Returns the members in blocks of {@link BLOCK_SIZE}, of which the last one may be shorter. */
function blocksOf(members: readonly Member[]): (readonly Member[])[] {
  const count = Math.ceil(members.length / BLOCK_SIZE);
  return Array.from({ length: count }, (_, block) => members.slice(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE));
}

/** Returns the expression of at least one member, with a rule for each distinguished count of earlier members; see {@link membersOf}. */
function countedMembers(members: readonly Member[], additional: Expression | null, bounds: Bounds, compiler: SchemaCompiler): Expression {
  const { min, max } = bounds;
  const counts = Array.from({ length: distinguishedCounts(members, bounds) }, (_, count) => count);
  const lastCount = counts.length - 1;
  /** By the number of earlier members: matches at least one member from the current position on. */
  let following = counts.map((count) => additionalMembers(additional, bounds, count, compiler));
  /** Whether no required member follows, so that the object may end at the current position if it has enough members. */
  let canEnd = true;
  for (const { key, afterKey, isRequired } of members.toReversed()) {
    const withoutMember = following;
    const mayBeLast = canEnd;
    const afterMember = withoutMember.map((others, count) => afterMemberRule(others, { canEnd: mayBeLast && count >= min }, compiler));
    following = withoutMember.map((others, count) =>
      compiler.rule(() => {
        const nextCount = Math.min(count + 1, lastCount);
        const withMember = count >= max ? MATCHES_NOTHING : sequence(text(key), afterKey, itemAt(afterMember, nextCount));
        return isRequired ? withMember : choice(withMember, others);
      }),
    );
    canEnd &&= !isRequired;
  }
  return itemAt(following, 0);
}

/**
 * Returns the expression of the members of an object, separated by commas.
 *
 * The grammar has these rules for each position `i` between the named members `m₀ … mₙ₋₁`, built from the last to the first:
 *
 * - `following(i) = mᵢ afterMember(i) | following(i + 1)`, without the second alternative if `mᵢ` is required;
 * - `afterMember(i) = "," following(i + 1)`, which is optional if none of the members after `mᵢ` is required;
 * - `following(n)`: one or more additional members.
 *
 * If bounds are enforced, each position has both rules for each distinguished number of earlier members.
 *
 * @param additional - Expression of one additional member; null if the schema allows none.
 */
function membersOf(members: readonly Member[], additional: Expression | null, bounds: Bounds, compiler: SchemaCompiler): Expression {
  const isCounted = bounds.min > 0 || bounds.max !== Infinity;
  const oneOrMore = isCounted ? countedMembers(members, additional, bounds, compiler) : unboundedMembers(members, additional, compiler);
  if (bounds.min > 0 || members.some(({ isRequired }) => isRequired)) return oneOrMore;
  return oneOrMore === MATCHES_NOTHING ? EMPTY : optional(oneOrMore);
}

/** Returns the expression of the objects that a schema describes. Records keywords that the grammar does not fully enforce with `relax`. */
export function objectOf(given: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const schema = withListedNames(given, compiler, path);
  const properties = toSchemaMap(schema["properties"], "properties", path);
  const required = new Set(toNames(schema["required"], "required", path));
  const names = [...new Set([...properties.keys(), ...required])];
  const { whitespace } = compiler.parts;
  /** Adds a rule for the text after a key; `location` is the path of the value's schema below `path`. */
  const afterKeyRule = (value: Schema, location: string): Expression =>
    compiler.rule(() => sequence(whitespace, text(":"), whitespace, compiler.compile(value, `${path}/${location}`), whitespace));

  const keys = new KeyRules(schema, compiler, path);
  const members = names.flatMap((name): Member[] => {
    const value = keys.schemaOf(name, properties.get(name));
    const isRequired = required.has(name);
    // A required member without a possible value remains: it makes the object impossible.
    if (value === false && !isRequired) return [];
    return [{ key: JSON.stringify(name), afterKey: afterKeyRule(value, `properties/${name}`), isRequired }];
  });
  const additionalOptions = keys
    .additional(names)
    .map((option) => compiler.rule(() => sequence(option.expression, afterKeyRule(option.schema, "additionalProperties"))));
  const additional = additionalOptions.length === 0 ? null : choiceOf(additionalOptions);
  const bounds = enforcedBounds(schema, members, { allowsAdditional: additional !== null }, compiler, path);
  if (bounds === null) return MATCHES_NOTHING;
  return sequence(text("{"), whitespace, membersOf(members, additional, bounds, compiler), text("}"));
}
