/** Validation of sources and options, for `Dataset` and the selections of groups. */
import { ArgumentError, ConflictError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import { Trajectory } from "../../base/trajectory/index.ts";

/**
 * Returns an iterable over a source that checks each item. Each iteration starts from the beginning, except for a generator, which can be
 * read only once: a second iteration throws ConflictError `E_CONFLICT`, because the data would silently be empty.
 *
 * @param checkItem - Returns an item unchanged, or throws for an invalid one.
 */
export function checkedSource<T>(source: Iterable<T> | AsyncIterable<T>, checkItem: (item: T) => T): AsyncIterable<T> {
  // A generator is its own iterator, so that it has `next`; other iterables create an iterator for each iteration.
  const isGenerator = "next" in source;
  let isRead = false;
  return {
    async *[Symbol.asyncIterator]() {
      if (isGenerator && isRead) {
        throw new ConflictError(
          "This dataset comes from a generator and was read before; make it of an array, or write it to a file first",
        );
      }
      isRead = true;
      for await (const item of source) yield checkItem(item);
    },
  };
}

/** Returns a trajectory unchanged. @throws ArgumentError `E_ARGUMENT` for any other value. */
export function checkedTrajectory(value: Trajectory): Trajectory {
  if (Trajectory.isInstance(value)) return value;
  throw new ArgumentError(`Expected a Trajectory, got ${value === null ? "null" : typeof value}`, { param: "trajectory" });
}

/** Checks an integer option. @throws ArgumentError `E_ARGUMENT` for a value that is not an integer of at least `min`. */
export function checkOptionCount(value: number, { param, min }: { readonly param: string; readonly min: number }): void {
  if (Number.isSafeInteger(value) && value >= min) return;
  refuse(param, `a whole number from ${min}`, value);
}
