/** Grammars of a sampler: vocabularies by model, compiled grammars by their text. */
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import { Lru, remember } from "../../../base/util/lru.ts";
import { getOrInsert } from "../../../base/util/values.ts";
import { runStepsInSlices } from "../../../base/util/steps.ts";
import type { Grammar } from "../../../text/grammar/expression.ts";
import type { GrammarParams } from "../../port.ts";
import { compileGrammarSteps } from "../../../text/grammar/decode/automaton.ts";
import { Configurations } from "../../../text/grammar/decode/configurations.ts";
import { GrammarConstraint } from "../../../text/grammar/decode/constraint.ts";
import { Vocabulary } from "../../../text/grammar/decode/vocabulary.ts";

/** Max models with a cached vocabulary; the least recently used is evicted first. */
const MAX_MODELS = 8;

/** Max compiled grammars cached per model, and max states of all of them; the least recently used is evicted first. */
const COMPILED = { maxEntries: 64, maxWeight: 1_000_000 };

/** Returns the text tokens of a tokenizer: all but special and end-of-sequence tokens. */
export function textVocabulary(tokenizer: ChatTokenizer): Vocabulary {
  const other = new Set([...tokenizer.specialTokenIds, ...tokenizer.eosTokenIds]);
  return new Vocabulary(Array.from({ length: tokenizer.vocabularySize }, (_, id) => (other.has(id) ? null : tokenizer.tokenBytes(id))));
}

/** Vocabulary of a model, and its compiled grammars by text. */
interface Model {
  readonly vocabulary: Vocabulary;
  readonly compiled: Lru<string, Configurations>;
  /** Grammars being compiled, by text. */
  readonly compiling: Map<string, Promise<Configurations>>;
}

/** Constraint as sent to the sampler, with the grammar as JSON. */
export interface GrammarText {
  readonly text: string;
  readonly endTokenIds: readonly number[];
}

const texts = new WeakMap<Grammar, string>();

/**
 * Returns a constraint with its grammar as one string: the choices of a request share the string, and a string is cheap to send to another
 * thread.
 */
export function grammarText({ grammar, endTokenIds }: GrammarParams): GrammarText {
  return { text: getOrInsert(texts, grammar, () => JSON.stringify(grammar)), endTokenIds };
}

/** Cache of vocabularies and compiled grammars. */
export class Grammars {
  readonly #models = new Lru<string, Promise<Model>>({ maxEntries: MAX_MODELS });

  /**
   * Creates the constraint of a new choice of the model in `directory`. Compiles a new grammar in slices, between which the thread samples.
   */
  async constraint(directory: string, { text, endTokenIds }: GrammarText): Promise<GrammarConstraint> {
    const load = async (): Promise<Model> => {
      // Loaded with the first grammar: the tokenizer has as many modules as the rest of a sampler's thread.
      const { loadTokenizer } = await import("../../../text/tokenizer/index.ts");
      return {
        vocabulary: textVocabulary(await loadTokenizer(directory)),
        compiled: new Lru<string, Configurations>(COMPILED),
        compiling: new Map(),
      };
    };
    const model = await remember(this.#models, directory, load);
    return new GrammarConstraint(await configurationsOf(model, text), model.vocabulary, endTokenIds);
  }
}

/** Returns the configurations of a grammar; concurrent calls with the same text share one compilation. */
async function configurationsOf({ vocabulary, compiled, compiling }: Model, text: string): Promise<Configurations> {
  const known = compiled.get(text) ?? compiling.get(text);
  if (known !== undefined) return known;
  const compilation = (async () => {
    const automaton = await runStepsInSlices(compileGrammarSteps(JSON.parse(text) as Grammar));
    const configurations = new Configurations(automaton, vocabulary.maxTokenBytes);
    compiled.set(text, configurations, automaton.states.length);
    return configurations;
  })();
  compiling.set(text, compilation);
  try {
    return await compilation;
  } finally {
    compiling.delete(text);
  }
}
