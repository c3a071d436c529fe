/**
 * Output head and loss of a gradient graph, in slices of the trained tokens. A slice computes logits, loss and gradients before the next
 * slice starts, so that the logits of only one slice are in memory at a time. Nothing is computed twice.
 */
import {
  add,
  after,
  differentiate,
  exp,
  type Graph,
  join,
  lessOrEqual,
  maximum,
  minimum,
  mul,
  neg,
  split,
  stopGradient,
  sub,
  sumAll,
  targetLogprob,
  type Value,
  where,
} from "../graph/index.ts";
import type { LossSpec } from "../../port.ts";
import type { ModelInputs } from "../model/model-inputs.ts";
import { headProduct } from "../model/transformer.ts";
import type { GradientKind } from "./gradient-graph.ts";
import { first, itemAt, zip } from "../../../base/util/values.ts";

/** Pieces of a trained parameter with their gradient sums; one piece if the parameter is not cut. */
export interface TrainedPieces {
  readonly weights: readonly Value[];
  readonly sums: readonly Value[];
}

/** Settings of {@link headLoss}. */
export interface HeadOptions {
  readonly kind: GradientKind;
  readonly hasEntropyBonus: boolean;
  /** Number of slices; divides the number of trained tokens. */
  readonly slices: number;
  /** Parameter of the head in its pieces, and the values that their gradients are added to; null if the head is frozen. */
  readonly trained: TrainedPieces | null;
}

/** Results of {@link headLoss}. */
export interface HeadResult {
  /** Log-probability of each trained token, `[S, 1]`. */
  readonly logprob: Value;
  /** Entropy of each trained token's distribution, `[S, 1]`. */
  readonly entropy: Value;
  /** Loss and gradients; null without a loss. */
  readonly backward: {
    readonly loss: Value;
    /** Gradient of the normed hidden states, `[S, H]`. */
    readonly hidden: Value;
    /** Gradient sums of the pieces of the head's parameter; null if the head is frozen. */
    readonly head: readonly Value[] | null;
  } | null;
}

/** Returns the name of the graph input with the values of `name` for one slice of the trained tokens. */
export const sliceName = (name: string, slice: number) => `${name}${slice}`;

/** Computes log-probabilities, entropies, loss and gradients of `S` trained tokens from their normed hidden states, `[S, H]`. */
export function headLoss(inputs: ModelInputs, normed: Value, { kind, hasEntropyBonus, slices, trained }: HeadOptions): HeadResult {
  const { graph } = inputs;
  const total = first(normed.shape);
  const rows = slices === 1 ? total : "slice";
  if (slices > 1) graph.smallDims.add("slice");
  const results: { logprob: Value; entropy: Value }[] = [];
  /** Gradients of the hidden states, one per slice. */
  const hidden: Value[] = [];
  let loss: Value | null = null;
  /** Gradient sums of the head, to which each slice adds. */
  let head = trained?.sums ?? [];
  const targets = Array.from({ length: slices }, (_, slice) => graph.input(sliceName("targets", slice), [rows], "int64"));
  const sizes = targets.map(() => rows);
  const pieces = slices === 1 ? [normed] : split(normed, 0, sizes);
  for (const [slice, piece] of pieces.entries()) {
    // A slice starts after all results of the previous slice, so that the logits of two slices are never in memory together.
    const previous = results.at(-1);
    const finished = previous && [previous.logprob, previous.entropy, ...hidden.slice(-1), ...head];
    const x = finished ? after(piece, finished) : piece;
    const { logprob, entropy } = targetLogprob(headProduct(inputs, x), itemAt(targets, slice));
    if (kind !== "forward") {
      const column = (name: string) => graph.input(sliceName(name, slice), [rows, 1]);
      const policyLosses = tokenLoss(graph, kind, logprob, column);
      const losses = hasEntropyBonus ? sub(policyLosses, mul(entropy, scalar(graph, "entropy_coef"))) : policyLosses;
      const sliceLoss = sumAll(mul(losses, column("weights")));
      loss = loss ? add(loss, sliceLoss) : sliceLoss;
      const weights = trained?.weights ?? [];
      const gradients = differentiate(sliceLoss, [x, ...weights], new Map(zip(weights, head)));
      hidden.push(first(gradients));
      head = gradients.slice(1);
    }
    results.push({ logprob, entropy });
  }
  const logprobs = results.map(({ logprob }) => logprob);
  const entropies = results.map(({ entropy }) => entropy);
  return {
    logprob: join(logprobs, 0, total),
    entropy: join(entropies, 0, total),
    backward: loss && { loss, hidden: join(hidden, 0, total), head: trained && head },
  };
}

/** Returns the scalar input `name`, declared at its first use. */
function scalar(graph: Graph, name: string): Value {
  return graph.inputs.find((input) => input.name === name) ?? graph.input(name, []);
}

/**
 * Computes the loss of each token, `[S, 1]`, as {@link LossSpec} defines it.
 *
 * @param column - Returns the input `name` of the tokens, `[S, 1]`.
 */
function tokenLoss(graph: Graph, kind: LossSpec["kind"], logprob: Value, column: (name: string) => Value): Value {
  if (kind === "cross-entropy") return neg(logprob);
  const advantages = column("advantages");
  // An unknown old logprob means on-policy: the ratio is 1, with the gradient of the new logprob.
  const old = where(lessOrEqual(graph.scalar(0.5), column("known")), column("old"), stopGradient(logprob));
  const ratio = exp(sub(logprob, old));
  const clipped = minimum(maximum(ratio, scalar(graph, "low")), scalar(graph, "high"));
  switch (kind) {
    case "cispo":
      return neg(mul(mul(stopGradient(clipped), advantages), logprob));
    case "ppo":
      return neg(minimum(mul(ratio, advantages), mul(clipped, advantages)));
  }
}
