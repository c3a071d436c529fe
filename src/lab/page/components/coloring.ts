/** Colors of sampled tokens: by log-probability, by advantage, or by the difference of trainer and sampler. */
import type { SampledData } from "../../report/page-data.ts";

/** A sampled turn with the advantage of its trajectory. */
export interface Turn {
  readonly sampled: SampledData;
  /**
   * Advantage of the trajectory within its group; the turn's own advantage, if stored, takes precedence. Null for an answer outside
   * training.
   */
  readonly advantage: number | null;
}

/** A way to color tokens. */
export interface Coloring {
  readonly name: string;
  readonly label: string;
  /** Texts at both ends of the scale; null for no legend. */
  readonly legend: readonly [low: string, high: string] | null;
  readonly kind: "sequential" | "diverging" | "none";
  /** Returns the color of a token by its index: −1 to 1 (below 0 cool, above 0 warm, 0 none), or null if the turn has no such number. */
  readonly scale: (turn: Turn, index: number) => number | null;
}

/** Returns the trainer's log-probability of a token minus the sampler's; null if one of them is missing. */
export function difference({ trained, logprobs }: SampledData, index: number): number | null {
  const [trainer, sampler] = [trained?.[index] ?? null, logprobs?.[index]];
  return trainer === null || sampler === undefined ? null : trainer - sampler;
}

/** Returns the advantage of a token: its own, else the turn's, else the trajectory's; null for an answer outside training. */
export function advantageOf({ sampled, advantage }: Turn, index: number): number | null {
  return sampled.advantages?.[index] ?? sampled.advantage ?? advantage;
}

/** Colorings in the order of their control; the first is the default. */
export const COLORINGS = [
  {
    name: "logprob",
    label: "Log-probability",
    legend: ["certain", "unlikely"],
    kind: "sequential",
    scale: ({ sampled }, index) => {
      const logprob = sampled.logprobs?.[index];
      // The full color stands for −4 nats; the exponent makes small differences visible.
      return logprob === undefined ? null : Math.min(1, -logprob / 4) ** 0.7;
    },
  },
  {
    name: "advantage",
    label: "Advantage",
    legend: ["less of this", "more of this"],
    kind: "diverging",
    // The full color stands for an advantage of ±2.
    scale: (turn, index) => Math.max(-1, Math.min(1, (advantageOf(turn, index) ?? 0) / 2)),
  },
  {
    name: "difference",
    label: "Trained − sampled",
    legend: ["sampler surer", "trainer surer"],
    kind: "diverging",
    scale: ({ sampled }, index) => {
      const value = difference(sampled, index);
      // The full color stands for ±0.5 nats.
      return value === null ? null : Math.sign(value) * Math.min(1, Math.abs(value) / 0.5) ** 0.5;
    },
  },
  { name: "plain", label: "None", legend: null, kind: "none", scale: () => null },
] as const satisfies readonly Coloring[];
