/** Grammars as tests look at them: texts that they accept, and texts that they make. */
import { GrammarBuilder, type Expression, type Grammar } from "../../../../src/engine/grammar/expression.ts";
import { compileGrammar } from "../../../../src/engine/onnx/sample/grammar/automaton.ts";
import { Configurations, type Configuration } from "../../../../src/engine/onnx/sample/grammar/configurations.ts";
import { SchemaCompiler, type JsonTextOptions } from "../../../../src/service/chat/structured/schema/compiler.ts";

/** A grammar that can be asked. */
export interface Language {
  /** Whether the whole text matches. */
  accepts(text: string): boolean;
  /** A text of the grammar, its bytes drawn by `draw`; null where that takes too long. */
  walk(draw: (below: number) => number): string | null;
}

/** Bytes that lead to an end, the best first. */
const CLOSING = Buffer.from('"}]:,0aeluSZ-T');
const FREE_STEPS = 24;
const MAX_STEPS = 250;

export function languageOf(grammar: Grammar): Language {
  const configurations = new Configurations(compileGrammar(grammar), 8);
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
        const allowed = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => configurations.step(at, byte) !== null);
        if (at.canEnd && (allowed.length === 0 || step > FREE_STEPS || draw(4) === 0))
          return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
        if (allowed.length === 0) throw new Error(`A text cannot go on after ${Buffer.from(bytes).toString()}`);
        const closing = CLOSING.find((byte) => allowed.includes(byte));
        // White space and letters would fill the text: other bytes have their turn as often.
        const rare = allowed.filter((byte) => byte > 0x20 && byte < 0x7f && !/[a-zA-Z]/.test(String.fromCharCode(byte)));
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

export function languageOfSchema(schema: unknown, options: JsonTextOptions = {}): Language {
  return languageOfExpression((builder) => new SchemaCompiler(builder, options).document(schema as boolean));
}
