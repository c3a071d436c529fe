/** Task of a work thread for JSON bodies. */
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "./requests.ts";

/** Task that `BodyReader` calls for large bodies. */
export const BODY_TASKS = {
  readBody: ({ kind, bytes }: { readonly kind: PlainKind; readonly bytes: Uint8Array }): JsonBody<PlainBody<PlainKind>> =>
    readBody(kind, bytes),
} as const;

/** Type of {@link BODY_TASKS}. */
export type BodyTasks = typeof BODY_TASKS;
