/** The grammars of a sampler: vocabularies by model, compiled grammars by what they say. */
import { loadTokenizer, type ChatTokenizer } from "../../../../tokenizer/index.ts";
import { remember } from "../../../../util/remember.ts";
import type { Grammar } from "../../../grammar/expression.ts";
import type { GrammarParams } from "../../../port.ts";
import { compileGrammar } from "./automaton.ts";
import { Configurations } from "./configurations.ts";
import { GrammarConstraint } from "./constraint.ts";
import { Vocabulary } from "./vocabulary.ts";

/** Models whose vocabularies are kept; the one not used for longest goes first. */
const MAX_MODELS = 8;

/** Compiled grammars kept per model; the one not used for longest goes first. */
const MAX_COMPILED = 64;

/** The tokens of a tokenizer that are text: not those that carry structure. */
export function textVocabulary(tokenizer: ChatTokenizer): Vocabulary {
  const other = new Set([...tokenizer.specialTokenIds, ...tokenizer.eosTokenIds]);
  return new Vocabulary(Array.from({ length: tokenizer.vocabularySize }, (_, id) => (other.has(id) ? null : tokenizer.tokenBytes(id))));
}

interface Model {
  readonly vocabulary: Vocabulary;
  readonly compiled: Map<string, Configurations>;
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
    const load = async () => ({ vocabulary: textVocabulary(await loadTokenizer(directory)), compiled: new Map() });
    const { vocabulary, compiled } = await remember(this.#models, directory, load, MAX_MODELS);
    const configurations = compiled.get(text) ?? new Configurations(compileGrammar(JSON.parse(text) as Grammar), vocabulary.maxTokenBytes);
    compiled.delete(text);
    compiled.set(text, configurations);
    if (compiled.size > MAX_COMPILED) compiled.delete(compiled.keys().next().value!);
    return new GrammarConstraint(configurations, vocabulary, endTokenIds);
  }
}
