/** Hooks on a stream's `write`, by which the block of a terminal notices other output of the process. */

import type { Writable } from "node:stream";

/** Callbacks around a write of another part of the program. */
export interface WriteHooks {
  /** Called before the text is written. */
  readonly before: () => void;
  /** Called after the write; `endsLine` is true if the text ended with a line break. */
  readonly after: (endsLine: boolean) => void;
}

/**
 * Calls the hooks around each `write` of a stream, also around the writes of `console`.
 *
 * @returns A function that ends the hooks. If another part of the program has replaced `write` meanwhile, its function stays.
 */
export function hookWrites(stream: Writable, { before, after }: WriteHooks): () => void {
  // A stream that has been hooked or replaced before has a `write` of its own; others inherit the method.
  const ownDescriptor = Object.getOwnPropertyDescriptor(stream, "write");
  const original = stream.write.bind(stream) as (...args: unknown[]) => boolean;
  let isActive = true;
  const hooked = (...args: unknown[]): boolean => {
    if (!isActive) return original(...args);
    before();
    try {
      return original(...args);
    } finally {
      after(endsLine(args[0]));
    }
  };
  stream.write = hooked as Writable["write"];
  return () => {
    isActive = false;
    if (stream.write !== (hooked as Writable["write"])) return;
    if (ownDescriptor === undefined) Reflect.deleteProperty(stream, "write");
    else Object.defineProperty(stream, "write", ownDescriptor);
  };
}

/** Returns whether a written chunk ends with a line break. */
function endsLine(chunk: unknown): boolean {
  if (typeof chunk === "string") return chunk.endsWith("\n");
  return chunk instanceof Uint8Array && chunk.at(-1) === 0x0a;
}
