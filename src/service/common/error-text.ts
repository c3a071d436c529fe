import { messageOf } from "../../base/util/values.ts";

/** Returns the stack of a thrown value for logs, or its message if it has no stack. */
export function traceOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
}
