/** One run of the model: new tokens of some rows of a cache in, distributions over the next tokens out. */
import type { ModelConfig } from "../model/config.ts";
import { viewOf } from "../model/parameters.ts";
import { rotaryTables } from "../model/transformer.ts";
import { ProgramCache } from "../program-cache.ts";
import { loadRuntime, Program, type Tensor, type TensorConstructor, type Tensors } from "../runtime.ts";
import type { LoadedAdapter, StackedAdapters } from "./adapters.ts";
import { decodeGraph } from "./decode-graph.ts";
import type { Weights } from "./policies.ts";
import { BLOCK_TOKENS } from "./prefix-cache.ts";
import { promptGraph } from "./prompt-graph.ts";
import { decodeThreads, promptThreads } from "./threads.ts";
import { givenShape } from "./turned.ts";

/** Which graph runs: tokens of prompts, or the next one of running rows. */
export type ForwardKind = "prompt" | "decode";

/** Compiled graphs kept: a model's shape has four, two kinds with adapters and without. */
const MAX_PROGRAMS = 16;

const GRAPHS = {
  prompt: { build: promptGraph, threads: promptThreads },
  decode: { build: decodeGraph, threads: decodeThreads },
};

/** What one run computes. */
export interface ForwardInput {
  readonly kind: ForwardKind;
  readonly weights: Weights;
  /** Adapters of the rows, and whose each row is. */
  readonly adapters: StackedAdapters | null;
  readonly owners: readonly (LoadedAdapter | null)[];
  /** New tokens `[B, T]`. */
  readonly tokens: Int32Array;
  /** How many tokens of each row are in the cache already, `[B]`. */
  readonly pasts: Int32Array;
  /** The cache as inputs of the graph, and what becomes of it: outputs by name, null where they are not to be written in place. */
  readonly feeds: Tensors;
  readonly fetches: Readonly<Record<string, Tensor | null>>;
  /** The flat indices of the tokens whose successors are wanted, at least two; where rows are filled up, of all rows. */
  readonly last: Int32Array;
  /** Whether raw logits are wanted too. */
  readonly needsLogits: boolean;
}

/** What came out: distributions over the vocabulary, `[S, V]` each. */
export interface Distributions {
  readonly vocabularySize: number;
  readonly logprobs: Float32Array;
  readonly probs: Float32Array;
  /** Null when nobody wanted them. */
  readonly logits: Float32Array | null;
  /** The other outputs, by name. */
  readonly results: Tensors;
}

/** See the file header. */
export class Forward {
  readonly #most: number;
  readonly #programs = new ProgramCache(MAX_PROGRAMS);
  readonly #constants = new WeakMap<Weights, Tensors>();
  readonly #rotary = new WeakMap<ModelConfig, Tensors>();

  /** @param most - Threads inside one op at most; there are as many as leave every bit as it is. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Gets ready for weights and adapters of a kind, so that a run's time is that of the run. */
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
      Program.compile(build(config, hasAdapters), kind, { threads: threads(config, hasAdapters, this.#most) }),
    );
  }

  #constantsOf(TensorClass: TensorConstructor, weights: Weights): Tensors {
    let tensors = this.#constants.get(weights);
    if (!tensors) {
      const { config, layout, flat } = weights;
      tensors = { ...this.#rotaryOf(TensorClass, config) };
      for (const parameter of layout.parameters)
        tensors[parameter.name] = new TensorClass("float32", viewOf(flat, parameter), givenShape(config, parameter));
      this.#constants.set(weights, tensors);
    }
    return tensors;
  }

  #rotaryOf(TensorClass: TensorConstructor, config: ModelConfig): Tensors {
    let tensors = this.#rotary.get(config);
    if (!tensors) {
      // The last piece of a prompt may reach beyond the context with tokens that only fill it up.
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

/** Non-negative numbers as int64, without a BigInt for each: its low word is the number. */
function wide(values: Int32Array): BigInt64Array {
  const words = new Int32Array(2 * values.length);
  for (let i = 0; i < values.length; i++) words[2 * i] = values[i]!;
  return new BigInt64Array(words.buffer);
}
