/** Task of the work threads that parses and validates large JSON bodies; `BodyReader` calls it, and `request-worker.ts` registers it. */
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "./requests.ts";

/** Tasks of this module. A task cannot be generic: `BodyReader` knows which kind of body it receives. */
export const BODY_TASKS = {
  readBody: ({ kind, bytes }: { readonly kind: PlainKind; readonly bytes: Uint8Array }): JsonBody<PlainBody<PlainKind>> =>
    readBody(kind, bytes),
} as const;

/** Type of {@link BODY_TASKS}. */
export type BodyTasks = typeof BODY_TASKS;
