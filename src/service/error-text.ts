/** What anything thrown says. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error as string);
}

/** The same with the stack, for logs. */
export function traceOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
}
