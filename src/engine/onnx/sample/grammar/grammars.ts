/** The grammars of a sampler: vocabularies by model, compiled grammars by what they say. */
import { loadTokenizer, type ChatTokenizer } from "../../../../tokenizer/index.ts";
import { remember } from "../../../../util/remember.ts";
import { runStepsInSlices } from "../../../../util/steps.ts";
import { WeightedCache } from "../../../../util/weighted-cache.ts";
import type { Grammar } from "../../../grammar/expression.ts";
import type { GrammarParams } from "../../../port.ts";
import { compileGrammarSteps } from "./automaton.ts";
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
  /** By text, while they are compiled. */
  readonly compiling: Map<string, Promise<Configurations>>;
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

  /** Follows a new choice of the model in `directory`. A grammar is compiled in slices, between which the thread samples. */
  async constraint(directory: string, { text, endTokenIds }: GrammarText): Promise<GrammarConstraint> {
    const load = async (): Promise<Model> => ({
      vocabulary: textVocabulary(await loadTokenizer(directory)),
      compiled: new WeightedCache<Configurations>(COMPILED),
      compiling: new Map(),
    });
    const model = await remember(this.#models, directory, load, MAX_MODELS);
    return new GrammarConstraint(await configurationsOf(model, text), model.vocabulary, endTokenIds);
  }
}

/** The configurations of a grammar; the choices of a request wait for the same ones. */
async function configurationsOf({ vocabulary, compiled, compiling }: Model, text: string): Promise<Configurations> {
  const known = compiled.get(text) ?? compiling.get(text);
  if (known !== undefined) return known;
  const made = (async () => {
    const automaton = await runStepsInSlices(compileGrammarSteps(JSON.parse(text) as Grammar));
    const configurations = new Configurations(automaton, vocabulary.maxTokenBytes);
    compiled.set(text, configurations, automaton.states.length);
    return configurations;
  })();
  compiling.set(text, made);
  try {
    return await made;
  } finally {
    compiling.delete(text);
  }
}
