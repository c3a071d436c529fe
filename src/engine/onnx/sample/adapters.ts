/** Adapters of a batch on the processor, stacked so that one product per matrix serves rows with different adapters. */
import type { ModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, adapterNames, allLinears, type Layout, type LinearSpec, viewOf } from "../model/parameters.ts";
import { joinTables, tableOf, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import type { PlacedStack } from "./place.ts";
import { sharedNames } from "./sampler-graph.ts";
import { isLarge } from "../model/size.ts";
import { first, getOrInsert, getOrThrow, itemAt } from "../../../base/util/values.ts";

/** Adapter with its weights. */
export interface LoadedAdapter extends Adapter {
  readonly flat: Float32Array;
  readonly layout: Layout;
}

/** Adapters of a batch, as stacks `[adapters, in, rank]` and `[adapters, rank, out]`. */
export interface StackedAdapters extends PlacedStack {
  readonly members: readonly LoadedAdapter[];
}

/**
 * Max rank of an adapter with one product of all rows. The runtime computes narrow results in slices of 16 columns, which several threads
 * would compute in another way than one.
 */
const MAX_SHARED_RANK = 16;

/**
 * Stacks the distinct adapters of a batch, all of one rank. Entry 0 is all zeros, for padding rows. The factor `alpha / rank` is folded
 * into `B`.
 *
 * @param previous - Stack to reuse if it already holds every adapter: rows change far more often than adapters.
 * @returns Null if there are no adapters.
 */
export function stackAdapters(
  config: ModelConfig,
  adapters: readonly LoadedAdapter[],
  previous: StackedAdapters | null = null,
): StackedAdapters | null {
  const members = [...new Set(adapters)];
  if (members.length === 0) return null;
  if (previous && members.every((adapter) => previous.members.includes(adapter))) return previous;
  const layout = adapterLayout(config, first(members).rank);
  const stacks = layout.parameters.map((parameter, index) => {
    const stack = new Float32Array((members.length + 1) * parameter.size);
    members.forEach((adapter, member) => {
      const source = viewOf(adapter.flat, itemAt(adapter.layout.parameters, index));
      const target = stack.subarray((member + 1) * parameter.size, (member + 2) * parameter.size);
      const factor = parameter.name.endsWith("_b") ? adapter.alpha / adapter.rank : 1;
      if (factor === 1) target.set(source);
      else for (let i = 0; i < source.length; i++) target[i] = source[i]! * factor;
    });
    return { name: parameter.name, shape: [members.length + 1, ...parameter.shape], stack };
  });
  let tensors: Tensors | null = null;
  const own = new Map<LoadedAdapter, Tensors>();
  const canShare = isLarge(config) && first(members).rank <= MAX_SHARED_RANK;
  return {
    members,
    release: () => {},
    useOf: (owners) => (canShare && new Set(owners.filter((owner) => owner !== null)).size === 1 ? "one" : "several"),
    feeds(TensorClass, owners, use) {
      if (use === "one") {
        const member = members.findIndex((each) => owners.includes(each));
        return getOrInsert(own, itemAt(members, member), () => {
          const matrices = new Map(
            stacks.map(({ name, shape: [, ...shape], stack }) => {
              const size = shape.reduce((a, b) => a * b, 1);
              return [name, stack.subarray((member + 1) * size, (member + 2) * size)];
            }),
          );
          return tableOf(allLinears(config).flatMap((linear) => sharedFeeds(TensorClass, linear, matrices)));
        });
      }
      const all = owners.map((owner) => (owner ? members.findIndex((member) => member === owner) + 1 : 0));
      // Results of padding rows are not used, so they may have the adapter of the other rows.
      const distinct = new Set(all.filter((entry) => entry > 0));
      const index = BigInt64Array.from(distinct.size === 1 ? distinct : all, BigInt);
      // Of a large model, these are hundreds of tensors for every token.
      tensors ??= tableOf(stacks.map(({ name, shape, stack }) => [name, new TensorClass("float32", stack, shape)] as const));
      return joinTables<Tensor>(tensors, { adapter: new TensorClass("int64", index, [index.length]) });
    },
  };
}

/**
 * Returns the inputs of one adapter that all rows have, for a linear layer: see `sharedAdapter` in sampler-graph.ts.
 *
 * @param matrices - Matrices of the adapter by name.
 */
function sharedFeeds(
  TensorClass: TensorConstructor,
  linear: LinearSpec,
  matrices: ReadonlyMap<string, Float32Array>,
): (readonly [string, Tensor])[] {
  const { parts, inputSize } = linear;
  const ofParts = parts.map(({ outputSize }, part) => {
    const { a, b } = adapterNames(linear, part);
    return { a: getOrThrow(matrices, a), b: getOrThrow(matrices, b), outputSize };
  });
  const rank = first(ofParts).a.length / inputSize;
  const width = parts.reduce((sum, { outputSize }) => sum + outputSize, 0);
  const [a, b] =
    parts.length === 1 ? [first(ofParts).a, first(ofParts).b] : [joined(ofParts.map((part) => part.a)), diagonal(ofParts, rank, width)];
  const names = sharedNames(linear);
  return [
    [names.a, new TensorClass("float32", a, parts.length === 1 ? [inputSize, rank] : [parts.length, inputSize, rank])],
    [names.b, new TensorClass("float32", b, [parts.length * rank, width])],
  ];
}

/** Returns arrays of equal length, one after the other. */
function joined(arrays: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(arrays.length * first(arrays).length);
  for (const [index, array] of arrays.entries()) all.set(array, index * array.length);
  return all;
}

/** Returns the block-diagonal matrix `[parts · rank, width]` of matrices `b` `[rank, outputSize]`. */
function diagonal(parts: readonly { readonly b: Float32Array; readonly outputSize: number }[], rank: number, width: number): Float32Array {
  const all = new Float32Array(parts.length * rank * width);
  let [row, column] = [0, 0];
  for (const { b, outputSize } of parts) {
    for (let r = 0; r < rank; r++, row++) all.set(b.subarray(r * outputSize, (r + 1) * outputSize), row * width + column);
    column += outputSize;
  }
  return all;
}
