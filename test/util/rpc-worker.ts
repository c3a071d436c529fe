/** Worker of worker-rpc.test.ts. */
import { parentPort } from "node:worker_threads";
import { ArgumentError, DataError, WhetstoneError } from "../../src/base/errors.ts";
import { Handover, serveCalls } from "../../src/base/util/worker-rpc.ts";

/** Error of a class that the calling thread does not know. */
class LimitError extends WhetstoneError {
  readonly code = "E_OVERLOADED";
}

/** Error of a class that a caller may register. */
class FieldError extends ArgumentError {}

/** Errors by name. */
export const FAILURES = {
  argument: () => new ArgumentError("Row 1: expected finite weights", { param: "rows" }),
  chain: () => {
    const system = Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
    const cause = new DataError("state.json cannot be read", { param: "path", cause: new TypeError("not a file", { cause: system }) });
    return new DataError("The model cannot be loaded", { cause });
  },
  unknownClass: () => new LimitError("Too many", { retryable: true, param: "n" }),
  field: () => new FieldError("Expected a number", { param: "seed" }),
  bug: () => new TypeError("x is not a function"),
  disk: () => Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" }),
  text: () => "a thrown string",
  cycle: () => {
    const error = new DataError("of itself");
    error.cause = error;
    return error;
  },
};

const methods = {
  add: ([a, b]: readonly [number, number]) => a + b,
  double: async (values: Float32Array) => {
    const doubled = values.map((value) => 2 * value);
    return new Handover(doubled, [doubled.buffer]);
  },
  fail: (name: keyof typeof FAILURES) => {
    throw FAILURES[name]();
  },
  report: (text: string) => parentPort!.postMessage({ event: { text } }),
};

export type RpcMethods = typeof methods;
export interface RpcEvent {
  readonly text: string;
}

if (parentPort !== null) serveCalls(parentPort, methods);
