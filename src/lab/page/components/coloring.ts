import type { SampledData } from "../../report/page-data.ts";

/** A sampled turn with the advantage of its trajectory. */
export interface Turn {
  readonly sampled: SampledData;
  /**
   * Advantage of the trajectory within its group; the turn's own advantage, if stored, takes precedence. Null for an answer outside training.
   */
  readonly advantage: number | null;
}

/** A way to color tokens. */
export interface Coloring {
  readonly name: string;
  readonly label: string;
  readonly legend: readonly [low: string, high: string] | null;
  readonly kind: "sequential" | "diverging" | "none";
  /** Returns -1 to 1 (below 0: cool, above: warm, 0: none), or null if the turn has no such number. */
  readonly scale: (turn: Turn, at: number) => number | null;
}

/** Returns the trainer's log-probability of a token minus the sampler's; null if one of them is missing. */
export function difference({ trained, logprobs }: SampledData, at: number): number | null {
  const [ours, theirs] = [trained?.[at] ?? null, logprobs?.[at]];
  return ours === null || theirs === undefined ? null : ours - theirs;
}

/** Returns the advantage of a token: its own, else the turn's, else the trajectory's; null for an answer outside training. */
export function advantageOf({ sampled, advantage }: Turn, at: number): number | null {
  return sampled.advantages?.[at] ?? sampled.advantage ?? advantage;
}

/** Colorings in the order of their control; the first is the default. */
export const COLORINGS = [
  {
    name: "logprob",
    label: "Log-probability",
    legend: ["certain", "unlikely"],
    kind: "sequential",
    scale: ({ sampled }, at) => {
      const logprob = sampled.logprobs?.[at];
      return logprob === undefined ? null : Math.min(1, -logprob / 4) ** 0.7;
    },
  },
  {
    name: "advantage",
    label: "Advantage",
    legend: ["less of this", "more of this"],
    kind: "diverging",
    scale: (turn, at) => Math.max(-1, Math.min(1, (advantageOf(turn, at) ?? 0) / 2)),
  },
  {
    name: "difference",
    label: "Trained − sampled",
    legend: ["sampler surer", "trainer surer"],
    kind: "diverging",
    scale: ({ sampled }, at) => {
      const value = difference(sampled, at);
      return value === null ? null : Math.sign(value) * Math.min(1, Math.abs(value) / 0.5) ** 0.5;
    },
  },
  { name: "plain", label: "None", legend: null, kind: "none", scale: () => null },
] as const satisfies readonly Coloring[];
