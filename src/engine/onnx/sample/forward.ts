/** Forward pass of the sampler: new tokens of some rows of a cache in, distributions over the next tokens out. */
import type { ModelConfig } from "../model/config.ts";
import { viewOf } from "../model/parameters.ts";
import { rotaryTables } from "../model/transformer.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { loadRuntime, Program, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import type { LoadedAdapter, StackedAdapters } from "./adapters.ts";
import { decodeGraph } from "./decode-graph.ts";
import type { Weights } from "./policies.ts";
import { BLOCK_TOKENS } from "./prefix-cache.ts";
import { promptGraph } from "./prompt-graph.ts";
import { decodeThreads, promptThreads } from "./thread-counts.ts";
import { originalShape } from "./transposed.ts";

/** Graph to run: prefill of prompts, or the next token of running rows. */
export type ForwardKind = "prompt" | "decode";

/** Max compiled graphs kept. A model shape has four: two kinds, with and without adapters. */
const MAX_PROGRAMS = 16;

const GRAPHS = {
  prompt: { build: promptGraph, threads: promptThreads },
  decode: { build: decodeGraph, threads: decodeThreads },
};

/** Inputs of one forward pass. */
export interface ForwardInput {
  readonly kind: ForwardKind;
  readonly weights: Weights;
  /** Stack with the adapters of the rows; null if no row has an adapter. */
  readonly adapters: StackedAdapters | null;
  /** Adapter of each row; null = no adapter. */
  readonly owners: readonly (LoadedAdapter | null)[];
  /** New tokens `[B, T]`, flat. */
  readonly tokens: Int32Array;
  /** Number of tokens of each row that are already in the cache, `[B]`. */
  readonly pasts: Int32Array;
  /** Graph inputs with the cache. */
  readonly feeds: Tensors;
  /** Graph outputs for the cache, by name: a tensor to write in place, or null to allocate one. */
  readonly fetches: Readonly<Record<string, Tensor | null>>;
  /**
   * Flat indices of the tokens after which a distribution is needed, at least two; in a batch padded to groups, one for each row, padding
   * included.
   */
  readonly last: Int32Array;
  /** Whether to return raw logits too. */
  readonly needsLogits: boolean;
}

/** Outputs of one forward pass: distributions over the vocabulary, `[S, V]` each. */
export interface Distributions {
  readonly vocabularySize: number;
  readonly logprobs: Float32Array;
  readonly probs: Float32Array;
  /** Null unless `needsLogits` was set. */
  readonly logits: Float32Array | null;
  /** Outputs of the graph by name, such as the new keys and values. */
  readonly results: Tensors;
}

/** Forward passes of a sampler, with caches of compiled graphs and weight tensors. */
export class Forward {
  readonly #maxThreads: number;
  readonly #programs = new ProgramCache(MAX_PROGRAMS);
  readonly #constants = new WeakMap<Weights, Tensors>();
  readonly #rotary = new WeakMap<ModelConfig, Tensors>();

  /** @param maxThreads - Max threads inside one op. Graphs use only as many as leave every bit of the results unchanged. */
  constructor(maxThreads: number) {
    this.#maxThreads = maxThreads;
  }

  /** Compiles the graph that {@link run} needs, so that the time of a run does not include compilation. */
  async prepare(kind: ForwardKind, { config }: Weights, hasAdapters: boolean): Promise<void> {
    await this.#program(kind, config, hasAdapters);
  }

  async run(input: ForwardInput): Promise<Distributions> {
    const { kind, weights, adapters, owners, tokens, pasts, last } = input;
    const { Tensor } = await loadRuntime();
    const program = await this.#program(kind, weights.config, adapters !== null);
    const size = pasts.length;
    const time = tokens.length / size;
    const results = await program.run(
      {
        ...this.#constantsOf(Tensor, weights),
        ...adapters?.feeds(Tensor, owners),
        ...input.feeds,
        tokens: new Tensor("int64", wide(tokens), [size, time]),
        positions: new Tensor("int64", wide(positionsOf(pasts, time)), [size, time]),
        last: new Tensor("int64", wide(last), [last.length]),
      },
      { ...input.fetches, logprobs: null, probs: null, ...(input.needsLogits ? { logits: null } : {}) },
    );
    const data = (name: string) => results[name]!.data as Float32Array;
    return {
      vocabularySize: weights.config.vocabularySize,
      logprobs: data("logprobs"),
      probs: data("probs"),
      logits: input.needsLogits ? data("logits") : null,
      results,
    };
  }

  #program(kind: ForwardKind, config: ModelConfig, hasAdapters: boolean): Promise<Program> {
    const { build, threads } = GRAPHS[kind];
    return this.#programs.get(JSON.stringify([kind, config, hasAdapters]), () =>
      Program.compile(build(config, hasAdapters), kind, { threads: threads(config, hasAdapters, this.#maxThreads) }),
    );
  }

  #constantsOf(TensorClass: TensorConstructor, weights: Weights): Tensors {
    let tensors = this.#constants.get(weights);
    if (!tensors) {
      const { config, layout, flat } = weights;
      tensors = { ...this.#rotaryOf(TensorClass, config) };
      for (const parameter of layout.parameters)
        tensors[parameter.name] = new TensorClass("float32", viewOf(flat, parameter), originalShape(config, parameter));
      this.#constants.set(weights, tensors);
    }
    return tensors;
  }

  #rotaryOf(TensorClass: TensorConstructor, config: ModelConfig): Tensors {
    let tensors = this.#rotary.get(config);
    if (!tensors) {
      // The padding of a prompt's last piece may reach beyond the context.
      const contextLength = Math.ceil(config.contextLength / BLOCK_TOKENS) * BLOCK_TOKENS;
      const { cos, sin } = rotaryTables({ ...config, contextLength });
      const shape = [contextLength, config.headSize / 2];
      tensors = { cos: new TensorClass("float32", cos, shape), sin: new TensorClass("float32", sin, shape) };
      this.#rotary.set(config, tensors);
    }
    return tensors;
  }
}

function positionsOf(pasts: Int32Array, time: number): Int32Array {
  const positions = new Int32Array(pasts.length * time);
  pasts.forEach((past, row) => {
    for (let t = 0; t < time; t++) positions[row * time + t] = past + t;
  });
  return positions;
}

/** Converts non-negative numbers to int64 without a BigInt for each: the number is the low word. */
function wide(values: Int32Array): BigInt64Array {
  const words = new Int32Array(2 * values.length);
  for (let i = 0; i < values.length; i++) words[2 * i] = values[i]!;
  return new BigInt64Array(words.buffer);
}
