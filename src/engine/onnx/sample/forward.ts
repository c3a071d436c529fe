/** Forward pass of a sampler: new tokens of some rows of a cache in, distributions over the next tokens, or drawn tokens, out. */
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { tableStart } from "../model/rope.ts";
import { isLarge } from "../model/size.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { joinTables, loadRuntime, type Program, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import { switchFeeds } from "./prepared-graph.ts";
import { drawFeeds, drawnTokens, type DrawInputs, type DrawnTokens } from "./draw-graph.ts";
import type { AdapterUse, PlacedStack, PlacedWeights } from "./place.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/**
 * Graph to run: prefill of prompts from their start, or after their first piece; or the next token of running rows, with distributions
 * (`decode`) or only with drawn tokens (`draw`).
 */
export type ForwardKind = "prompt" | "continuation" | "decode" | "draw";

/** Program of a model: of one kind, or the program of {@link preparedGraph} for prompts and decoding. */
export type ProgramKind = ForwardKind | "prepared";

/**
 * Max compiled graphs kept. A model shape has at most six: three kinds, with and without adapters; on a device fourteen, also with logits.
 */
const MAX_PROGRAMS = 16;

/** Graphs of a place and the weights that they read. */
export interface ForwardPlace<W extends PlacedWeights> {
  /** Returns the program that computes a kind of pass. */
  programOf(kind: ForwardKind, weights: W): ProgramKind;
  compile(kind: ProgramKind, weights: W, adapters: AdapterUse): Promise<Program>;
  /** Whether programs hold these weights as constants, so that each model has programs of its own. */
  isPrepared(weights: W): boolean;
  /** Whether all runs of a program return the same outputs, as a program with resident outputs requires. */
  readonly hasFixedOutputs: boolean;
  /** Returns the graph inputs that are the same for all runs: weights and rotary tables. */
  constants(TensorClass: TensorConstructor, weights: W): Tensors;
}

/** Inputs of one forward pass. */
export interface ForwardInput<W extends PlacedWeights = PlacedWeights> {
  readonly kind: ForwardKind;
  readonly weights: W;
  /** Stack with the adapters of the rows; null if no row has an adapter. */
  readonly adapters: PlacedStack | null;
  /** How the rows have adapters. */
  readonly use: AdapterUse;
  /** Adapter of each row; null = no adapter. */
  readonly owners: readonly (Adapter | null)[];
  /** New tokens `[B, T]`, flat. */
  readonly tokens: Int32Array;
  /** Number of tokens of each row that are already in the cache, `[B]`. */
  readonly pasts: Int32Array;
  /**
   * Number of tokens of each row's sequence, which decides on its rotary table, `[B]`: of a prompt, all tokens, also those still to come.
   */
  readonly lengths: Int32Array;
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
  /** Inputs of the draw; null for graphs that draw no tokens. */
  readonly draws: DrawInputs | null;
}

/** Distributions over the vocabulary, `[S, V]` each. */
export interface Distributions {
  readonly vocabularySize: number;
  readonly logprobs: Float32Array;
  readonly probs: Float32Array;
  /** Null unless `needsLogits` was set. */
  readonly logits: Float32Array | null;
}

/** Outputs of one forward pass. */
export interface ForwardOutput {
  /** Null for the kind `draw`. */
  readonly distributions: Distributions | null;
  /** Null unless `draws` was set. */
  readonly drawn: DrawnTokens | null;
  /** Outputs of the graph by name, such as the new keys and values. */
  readonly results: Tensors;
}

/**
 * Time without a run after which a program that holds weights is freed for another program on the same weights, in milliseconds. In an RL
 * run, the base model is sampled in the first step alone, and then its adapters.
 */
const IDLE_MS = 2000;

/** Program that holds weights, and the time of its last run. */
interface PreparedProgram {
  readonly program: ProgramCache;
  usedMs: number;
}

/** Forward passes of a sampler, with a cache of compiled graphs. */
export class Forward<W extends PlacedWeights> {
  readonly #place: ForwardPlace<W>;
  readonly #programs = new ProgramCache(MAX_PROGRAMS);
  /** Programs that hold weights, by key. */
  readonly #prepared = new Map<W, Map<string, PreparedProgram>>();
  /** Configurations as text: writing them in every run takes time that a small model notices. */
  readonly #texts = new WeakMap<ModelConfig, string>();

  constructor(place: ForwardPlace<W>) {
    this.#place = place;
  }

  /** Compiles the graph that {@link run} needs, so that the time of a run does not include compilation. */
  async prepare(kind: ForwardKind, weights: W, adapters: AdapterUse, needsLogits: boolean): Promise<void> {
    await this.#program(kind, weights, adapters, needsLogits);
  }

  /** Frees the programs that hold these weights. */
  forget(weights: W): void {
    for (const { program } of this.#prepared.get(weights)?.values() ?? []) program.clear();
    this.#prepared.delete(weights);
  }

  /** Frees the programs that hold weights of large models. Not to be called during a pass. */
  freeIdle(): void {
    for (const [{ config }, programs] of this.#prepared) if (isLarge(config)) freeUnused(programs, performance.now());
  }

  /** Runs one pass. Compiles its graph first if neither {@link prepare} nor an earlier pass did. */
  async run(input: ForwardInput<W>): Promise<ForwardOutput> {
    const { kind, weights, adapters, use, owners, tokens, pasts, last, draws, needsLogits } = input;
    const { vocabularySize } = weights.config;
    const { Tensor } = await loadRuntime();
    const program = await this.#program(kind, weights, use, needsLogits);
    const size = pasts.length;
    const time = tokens.length / size;
    const results = await program.run(
      joinTables<Tensor>(
        this.#place.constants(Tensor, weights),
        (await adapters?.feeds(Tensor, owners, use)) ?? {},
        input.feeds,
        this.#place.isPrepared(weights) ? switchFeeds(Tensor, kind, { rows: size, time }) : {},
        draws ? drawFeeds(Tensor, draws, vocabularySize) : {},
        { tokens: new Tensor("int64", toInt64(tokens), [size, time]) },
        program.inputNames.includes("positions") ? { positions: new Tensor("int64", toInt64(positionsOf(input, time)), [size, time]) } : {},
        program.inputNames.includes("last") ? { last: new Tensor("int64", toInt64(last), [last.length]) } : {},
      ),
      {
        ...input.fetches,
        ...(kind === "draw" ? {} : { logprobs: null, probs: null, ...(needsLogits ? { logits: null } : {}) }),
        ...(draws ? { drawn: null } : {}),
      },
    );
    const data = (name: string) => results[name]!.data as Float32Array;
    return {
      distributions:
        kind === "draw"
          ? null
          : { vocabularySize, logprobs: data("logprobs"), probs: data("probs"), logits: needsLogits ? data("logits") : null },
      drawn: draws ? drawnTokens(data("drawn")) : null,
      results,
    };
  }

  #program(of: ForwardKind, weights: W, adapters: AdapterUse, needsLogits: boolean): Promise<Program> {
    const { config } = weights;
    const kind = this.#place.programOf(of, weights);
    const isSeparate = this.#place.hasFixedOutputs && needsLogits;
    const text = getOrInsert(this.#texts, config, () => JSON.stringify(config));
    const key = `${kind} ${adapters} ${isSeparate} ${text}`;
    const programs = this.#place.isPrepared(weights) ? this.#preparedPrograms(weights, key) : this.#programs;
    return programs.get(key, () => this.#place.compile(kind, weights, adapters));
  }

  /** Returns the cache of one program that holds weights. Before a new one, frees other programs on these weights that are not in use. */
  #preparedPrograms(weights: W, key: string): ProgramCache {
    const all = getOrInsert(this.#prepared, weights, () => new Map<string, PreparedProgram>());
    const nowMs = performance.now();
    if (!all.has(key)) freeUnused(all, nowMs - IDLE_MS);
    const used = getOrInsert(all, key, () => ({ program: new ProgramCache(1), usedMs: nowMs }));
    used.usedMs = nowMs;
    return used.program;
  }
}

/** Frees programs that were not run since a time. */
function freeUnused(programs: Map<string, PreparedProgram>, sinceMs: number): void {
  for (const [key, { program, usedMs }] of programs) {
    if (usedMs > sinceMs) continue;
    program.clear();
    programs.delete(key);
  }
}

/** Returns the rows of the rotary tables for the new tokens. */
function positionsOf({ weights, pasts, lengths }: Pick<ForwardInput, "weights" | "pasts" | "lengths">, time: number): Int32Array {
  const positions = new Int32Array(pasts.length * time);
  pasts.forEach((past, row) => {
    const start = tableStart(weights.config, lengths[row]!) + past;
    for (let t = 0; t < time; t++) positions[row * time + t] = start + t;
  });
  return positions;
}

/** Converts non-negative numbers to int64 without a BigInt for each: the number is the low word. */
function toInt64(values: Int32Array): BigInt64Array {
  const words = new Int32Array(2 * values.length);
  for (let i = 0; i < values.length; i++) words[2 * i] = values[i]!;
  return new BigInt64Array(words.buffer);
}
