/** Test helpers for grammars: check texts, and generate texts. */
import { GrammarBuilder, type Expression, type Grammar } from "../../../src/text/grammar/expression.ts";
import { compileGrammar, type AutomatonState } from "../../../src/text/grammar/decode/automaton.ts";
import type { Configuration } from "../../../src/text/grammar/decode/configuration.ts";
import { Configurations } from "../../../src/text/grammar/decode/configurations.ts";
import { SchemaCompiler, type JsonTextOptions } from "../../../src/text/grammar/compile/schema/compiler.ts";

/** Language of a grammar. */
export interface Language {
  /** Returns whether the whole text matches. */
  accepts(text: string): boolean;
  /** Generates a text with bytes chosen by `draw`; null if that takes too many steps. */
  walk(draw: (below: number) => number): string | null;
}

/** Bytes that lead to the end of a text, in order of preference. */
const CLOSING = Buffer.from('"}]:,0aeluSZ-T');
const FREE_STEPS = 24;
const MAX_STEPS = 250;

/** Possible next bytes of a walk. */
interface Choices {
  readonly allowed: readonly number[];
  /** Allowed bytes except white space and letters; preferred, because white space and letters would fill the text. */
  readonly rare: readonly number[];
  readonly closing: number | undefined;
}

export function languageOf(grammar: Grammar): Language {
  const automaton = compileGrammar(grammar);
  const configurations = new Configurations(automaton, 8);
  const known = new Map<Configuration, Choices>();
  const choicesAt = (at: Configuration): Choices => {
    const before = known.get(at);
    if (before !== undefined) return before;
    const reached = new Set<number>();
    for (const { state } of at.points) {
      const { edges } = automaton.states[state] as Extract<AutomatonState, { kind: "bytes" }>;
      for (const { first, last } of edges) for (let byte = first; byte <= last; byte++) reached.add(byte);
    }
    const allowed = [...reached].filter((byte) => configurations.step(at, byte) !== null).sort((a, b) => a - b);
    const rare = allowed.filter((byte) => byte > 0x20 && byte < 0x7f && !/[a-zA-Z]/.test(String.fromCharCode(byte)));
    const made = { allowed, rare, closing: CLOSING.find((byte) => allowed.includes(byte)) };
    known.set(at, made);
    return made;
  };
  return {
    accepts: (text) => {
      let at: Configuration | null = configurations.start();
      for (const byte of Buffer.from(text)) at = at && configurations.step(at, byte);
      return at?.canEnd === true;
    },
    walk: (draw) => {
      const bytes: number[] = [];
      let at = configurations.start();
      for (let step = 0; step < MAX_STEPS; step++) {
        const { allowed, rare, closing } = choicesAt(at);
        if (at.canEnd && (allowed.length === 0 || step > FREE_STEPS || draw(4) === 0))
          return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
        if (allowed.length === 0) throw new Error(`A text cannot go on after ${Buffer.from(bytes).toString()}`);
        const from = step <= FREE_STEPS || closing === undefined ? (rare.length > 0 && draw(3) > 0 ? rare : allowed) : [closing];
        const byte = from[draw(from.length)]!;
        bytes.push(byte);
        at = configurations.step(at, byte)!;
      }
      return null;
    },
  };
}

export function languageOfExpression(make: (builder: GrammarBuilder) => Expression): Language {
  const builder = new GrammarBuilder();
  return languageOf(builder.build(make(builder)));
}

/** Returns the language of a schema, and the keywords that its grammar leaves to the validation. */
export function compileSchema(schema: unknown, options: JsonTextOptions = {}): { language: Language; loose: string[] } {
  const builder = new GrammarBuilder();
  const { expression, relaxations } = new SchemaCompiler(builder, options).document(schema as boolean);
  return { language: languageOf(builder.build(expression)), loose: relaxations.map(({ keyword }) => keyword) };
}

export function languageOfSchema(schema: unknown, options: JsonTextOptions = {}): Language {
  return compileSchema(schema, options).language;
}
