/**
 * Rotary position embeddings: frequencies of a head's pairs, optionally rescaled for a longer context.
 *
 * Every supported variant is a table over positions, which training, prefill and decoding share. `rope-settings.ts` parses the settings.
 */
import { runSteps, runStepsInSlices, type Steps } from "../../../base/util/steps.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import type { SlidingWindow } from "./layer-windows.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Rescaling of rotary frequencies. */
export type RopeScaling =
  | { readonly kind: "none" }
  /** Divides every frequency by `factor`. */
  | { readonly kind: "linear"; readonly factor: number }
  /** Divides low frequencies by `factor`, keeps high ones, and interpolates between. */
  | {
      readonly kind: "llama3";
      readonly factor: number;
      /** Max periods in the original context of a frequency that counts as low. */
      readonly lowFrequencyFactor: number;
      /** Min periods in the original context of a frequency that counts as high. */
      readonly highFrequencyFactor: number;
      /** Context length before rescaling, in tokens. */
      readonly originalContextLength: number;
    }
  /** Interpolates over the pairs between kept and divided frequencies, and scales `cos` and `sin` by `attentionFactor`. */
  | {
      readonly kind: "yarn";
      readonly factor: number;
      /** Context length before rescaling, in tokens. */
      readonly originalContextLength: number;
      readonly attentionFactor: number;
      /** Periods in the original context from which a frequency is kept. */
      readonly betaFast: number;
      /** Periods in the original context up to which a frequency is divided. */
      readonly betaSlow: number;
      /** Whether the pairs at both bounds are rounded outward to whole indices. */
      readonly isTruncated: boolean;
    }
  /**
   * Divides each frequency by its short factor in sequences of at most `originalContextLength` tokens. In longer sequences, divides it by
   * its long factor at all positions. Scales `cos` and `sin` by `attentionFactor`. Has two tables, see {@link tableStart}.
   */
  | {
      readonly kind: "longrope";
      /** Divisor of each pair's frequency in short sequences, `r/2` numbers. */
      readonly shortFactors: readonly number[];
      /** Divisors in longer sequences, `r/2` numbers. */
      readonly longFactors: readonly number[];
      /** Maximum number of tokens of sequences with the short factors, an integer. */
      readonly originalContextLength: number;
      readonly attentionFactor: number;
    };

/** Rotary embedding of some layers: base of the frequencies and their rescaling. */
export interface Rope {
  readonly ropeTheta: number;
  readonly rope: RopeScaling;
}

/** Growth of queries with their position `p`: the factor `1 + beta · ln(1 + ⌊p / originalContextLength⌋)`. */
export interface QueryGrowth {
  readonly beta: number;
  readonly originalContextLength: number;
}

/** Parameters of the rotary tables, part of a model's configuration. */
export interface RopeConfig extends Rope {
  /** Elements at the start of a head that are rotated, r; the others are not. */
  readonly rotarySize: number;
  readonly contextLength: number;
  /** Rotary embedding of the layers with a window, if they have another. */
  readonly localRope: Rope | null;
  /** Factor of rotated queries; null = 1. */
  readonly queryGrowth: QueryGrowth | null;
}

/** Prefix of a set of tables: `""` for all layers without another set, `local_` for layers with a window, `query_` for queries alone. */
export type TableSet = "" | "local_" | "query_";

/** Rotary tables by graph input, each `[positions, r/2]`: `cos` and `sin`, with the set's name in front. */
export type RotaryTables = Readonly<Record<"cos" | "sin", Float32Array>> & Readonly<Record<string, Float32Array>>;

/** Properties that decide which tables a layer reads. */
type LayerRotation = Pick<RopeConfig, "localRope" | "queryGrowth"> & {
  readonly unrotatedLayers: readonly number[];
  readonly window: SlidingWindow | null;
};

/** Returns the sets of tables that a layer rotates its queries and keys with; null if it does not rotate them. */
export function rotationOf(
  { unrotatedLayers, localRope, queryGrowth, window }: LayerRotation,
  layer: number,
): { readonly queries: TableSet; readonly keys: TableSet } | null {
  if (unrotatedLayers.includes(layer)) return null;
  const keys: TableSet = localRope !== null && window?.layers.includes(layer) === true ? "local_" : "";
  return { queries: queryGrowth === null ? keys : "query_", keys };
}

/** Returns the sets of tables of a model. */
export function tableSets({ localRope, queryGrowth }: Pick<RopeConfig, "localRope" | "queryGrowth">): readonly TableSet[] {
  return ["", ...(localRope === null ? [] : (["local_"] as const)), ...(queryGrowth === null ? [] : (["query_"] as const))];
}

/**
 * Returns the row of the tables for the first position of a sequence of `length` tokens: 0, except for the long sequences of "longrope",
 * whose table follows the rows of the short ones.
 */
export function tableStart({ rope }: Pick<Rope, "rope">, length: number): number {
  return rope.kind === "longrope" && length > rope.originalContextLength ? rope.originalContextLength : 0;
}

/**
 * Returns the maximum length that a sequence of now `length` tokens can reach by sampling. With "longrope", a short sequence does not grow
 * beyond the original length, because all keys in its cache would change.
 */
export function maxSampledLength({ rope, contextLength }: Pick<RopeConfig, "rope" | "contextLength">, length: number): number {
  return rope.kind === "longrope" && length <= rope.originalContextLength
    ? Math.min(rope.originalContextLength, contextLength)
    : contextLength;
}

/** Positions of a table that {@link rotaryTablesInTurns} computes before it lets other events of the thread run. */
const POSITIONS_PER_TURN = 4096;

/**
 * Returns the tables of the angles `position · frequency`, each `[contextLength, r/2]`; for "longrope", first the rows of the original
 * length with the short factors, then `contextLength` rows with the long ones.
 */
export function rotaryTables(config: RopeConfig): RotaryTables {
  return runSteps(tableTurns(config));
}

/**
 * Returns the same tables as {@link rotaryTables}, and lets other events of the thread run in between: long contexts take 0.1 s and more.
 */
export function rotaryTablesInTurns(config: RopeConfig): Promise<RotaryTables> {
  return runStepsInSlices(tableTurns(config), { sliceMs: 0 });
}

/** Returns the tables as inputs of a graph. */
export function rotaryFeeds(TensorClass: TensorConstructor, { rotarySize }: Pick<RopeConfig, "rotarySize">, tables: RotaryTables): Tensors {
  const pairs = rotarySize / 2;
  return Object.fromEntries(
    Object.entries(tables).map(([name, table]) => [name, new TensorClass("float32", table, [table.length / pairs, pairs])]),
  );
}

/** Computes the tables of all sets, and yields after every {@link POSITIONS_PER_TURN} positions. */
function* tableTurns(config: RopeConfig): Steps<RotaryTables> {
  const { localRope, queryGrowth } = config;
  const tables: Record<string, Float32Array> = {};
  for (const set of tableSets(config)) {
    const rope = set === "local_" ? localRope! : config;
    const { cos, sin } = yield* tablesOf(config, rope, set === "query_" ? queryGrowth : null);
    tables[`${set}cos`] = cos;
    tables[`${set}sin`] = sin;
  }
  return tables as RotaryTables;
}

/** Computes the tables of one set. */
function* tablesOf(
  { rotarySize, contextLength }: RopeConfig,
  { ropeTheta, rope }: Rope,
  growth: QueryGrowth | null,
): Steps<{ readonly cos: Float32Array; readonly sin: Float32Array }> {
  const pairs = rotarySize / 2;
  /** Rows of the short sequences of "longrope"; 0 for other types. */
  const shortRows = tableStart({ rope }, Infinity);
  const cos = new Float32Array((shortRows + contextLength) * pairs);
  const sin = new Float32Array((shortRows + contextLength) * pairs);
  const factor = rope.kind === "yarn" || rope.kind === "longrope" ? rope.attentionFactor : 1;
  const parts = [
    { firstRow: 0, count: shortRows, isLong: false },
    { firstRow: shortRows, count: contextLength, isLong: shortRows > 0 },
  ];
  for (const { firstRow, count, isLong } of parts.filter((part) => part.count > 0)) {
    const frequencies = ropeFrequencies({ rotarySize, ropeTheta, rope }, isLong);
    for (let position = 0; position < count; position++) {
      if (position > 0 && position % POSITIONS_PER_TURN === 0) yield;
      const amplitude = growth === null ? factor : factor * growthAt(position, growth);
      const rowStart = (firstRow + position) * pairs;
      for (let i = 0; i < pairs; i++) {
        const angle = position * frequencies[i]!;
        cos[rowStart + i] = amplitude * Math.cos(angle);
        sin[rowStart + i] = amplitude * Math.sin(angle);
      }
    }
    yield;
  }
  return { cos, sin };
}

/** Returns the factor of a query at a position. */
function growthAt(position: number, { beta, originalContextLength }: QueryGrowth): number {
  return 1 + beta * Math.log(1 + Math.floor(position / originalContextLength));
}

/**
 * Returns the frequency of each pair in radians per position: `theta^(−2i/r)`, rescaled.
 *
 * @param isLong - Whether the sequence is longer than the original context, for "longrope".
 * @source Chen et al. 2023, arXiv:2306.15595 (linear); Grattafiori et al. 2024, arXiv:2407.21783, and the released
 * configurations (llama3); Peng et al. 2023, arXiv:2309.00071 (yarn); Ding et al. 2024, arXiv:2402.13753 (longrope).
 */
export function ropeFrequencies({ rotarySize: r, ropeTheta, rope }: Pick<RopeConfig, "rotarySize"> & Rope, isLong = false): number[] {
  const plain = Array.from({ length: r / 2 }, (_, i) => ropeTheta ** ((-2 * i) / r));
  switch (rope.kind) {
    case "none":
      return plain;
    case "longrope":
      return plain.map((frequency, i) => frequency / itemAt(isLong ? rope.longFactors : rope.shortFactors, i));
    case "linear":
      return plain.map((frequency) => frequency / rope.factor);
    case "llama3":
      return plain.map((frequency) => {
        // Number of periods in the original context.
        const periods = (rope.originalContextLength * frequency) / (2 * Math.PI);
        const kept = clamp((periods - rope.lowFrequencyFactor) / (rope.highFrequencyFactor - rope.lowFrequencyFactor));
        return blend(frequency, rope.factor, kept);
      });
    case "yarn": {
      // Fractional index of the pair with so many periods in the original context.
      const pairOf = (periods: number) => (r * Math.log(rope.originalContextLength / (periods * 2 * Math.PI))) / (2 * Math.log(ropeTheta));
      const [lastKept, firstDivided] = [pairOf(rope.betaFast), pairOf(rope.betaSlow)];
      const low = Math.max(rope.isTruncated ? Math.floor(lastKept) : lastKept, 0);
      const high = Math.min(rope.isTruncated ? Math.ceil(firstDivided) : firstDivided, r - 1);
      // As in transformers, a range without a width has a small one instead of a division by 0.
      const width = low === high ? 0.001 : high - low;
      return plain.map((frequency, i) => blend(frequency, rope.factor, 1 - clamp((i - low) / width)));
    }
  }
}

/** Mixes a frequency with the same frequency divided by `factor`. @param kept - Share of the undivided frequency, in [0, 1]. */
function blend(frequency: number, factor: number, kept: number): number {
  return kept * frequency + ((1 - kept) * frequency) / factor;
}

/** Limits a number to [0, 1]. */
function clamp(x: number): number {
  return Math.min(1, Math.max(0, x));
}
