/** The grammars of a sampler: vocabularies by model, compiled grammars by what they say. */
import { loadTokenizer, type ChatTokenizer } from "../../../../tokenizer/index.ts";
import { remember } from "../../../../util/remember.ts";
import { WeightedCache } from "../../../../util/weighted-cache.ts";
import type { Grammar } from "../../../grammar/expression.ts";
import type { GrammarParams } from "../../../port.ts";
import { compileGrammar } from "./automaton.ts";
import { Configurations } from "./configurations.ts";
import { GrammarConstraint } from "./constraint.ts";
import { Vocabulary } from "./vocabulary.ts";

/** Models whose vocabularies are kept; the one not used for longest goes first. */
const MAX_MODELS = 8;

/** Compiled grammars kept per model, and their states together; the one not used for longest goes first. */
const COMPILED = { maxEntries: 64, maxWeight: 1_000_000 };

/** The tokens of a tokenizer that are text: not those that carry structure. */
export function textVocabulary(tokenizer: ChatTokenizer): Vocabulary {
  const other = new Set([...tokenizer.specialTokenIds, ...tokenizer.eosTokenIds]);
  return new Vocabulary(Array.from({ length: tokenizer.vocabularySize }, (_, id) => (other.has(id) ? null : tokenizer.tokenBytes(id))));
}

interface Model {
  readonly vocabulary: Vocabulary;
  readonly compiled: WeightedCache<Configurations>;
}

/** A constraint on its way to the sampler. */
export interface GrammarText {
  readonly text: string;
  readonly endTokenIds: readonly number[];
}

const texts = new WeakMap<Grammar, string>();

/** A constraint with its grammar as one text: the choices of a request share it, and a text crosses to another thread in no time. */
export function grammarText({ grammar, endTokenIds }: GrammarParams): GrammarText {
  let text = texts.get(grammar);
  if (text === undefined) texts.set(grammar, (text = JSON.stringify(grammar)));
  return { text, endTokenIds };
}

/** See the file header. */
export class Grammars {
  readonly #models = new Map<string, Promise<Model>>();

  /** Follows a new choice of the model in `directory`. */
  async constraint(directory: string, { text, endTokenIds }: GrammarText): Promise<GrammarConstraint> {
    const load = async () => ({
      vocabulary: textVocabulary(await loadTokenizer(directory)),
      compiled: new WeightedCache<Configurations>(COMPILED),
    });
    const { vocabulary, compiled } = await remember(this.#models, directory, load, MAX_MODELS);
    let configurations = compiled.get(text);
    if (configurations === undefined) {
      const automaton = compileGrammar(JSON.parse(text) as Grammar);
      configurations = new Configurations(automaton, vocabulary.maxTokenBytes);
      compiled.set(text, configurations, automaton.states.length);
    }
    return new GrammarConstraint(configurations, vocabulary, endTokenIds);
  }
}
