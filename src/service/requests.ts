/** JSON bodies by kind of request: their bounds, their schemas, and how one is read. */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { z } from "zod";
import { ArgumentError } from "../errors.ts";
import {
  createArtifactRequest,
  createModelRequest,
  createRlJobRequest,
  createSftJobRequest,
  deleteCheckpointsRequest,
  trajectoryGroup,
} from "../schema/index.ts";
import { checkJsonSize } from "../util/json-size.ts";
import { UnreadableBodyError } from "./http-errors.ts";
import { checkFieldLimits, REQUEST_LIMITS, type RequestKind } from "./request-limits.ts";
import { validate } from "./validation.ts";

/** An RL request whose trajectories are still to be read, one by one. */
const rlEnvelope = createRlJobRequest.extend({
  trajectory_groups: z.array(trajectoryGroup.extend({ trajectories: z.array(z.unknown()) })).min(1),
});
export type RlEnvelope = z.output<typeof rlEnvelope>;

const SCHEMAS = {
  model: createModelRequest,
  checkpoints: deleteCheckpointsRequest,
  artifact: createArtifactRequest,
  sft: createSftJobRequest,
  rl: rlEnvelope,
} as const satisfies Readonly<Record<Exclude<RequestKind, "chat">, z.ZodType>>;

/** A kind of request whose whole body one schema describes. */
export type PlainKind = keyof typeof SCHEMAS;

/** The body of a kind of request. */
export type PlainBody<K extends PlainKind> = z.output<(typeof SCHEMAS)[K]>;

/** A JSON body, and for idempotency the digest of its bytes. */
export interface JsonBody<T> {
  readonly value: T;
  /** SHA-256, hexadecimal. */
  readonly digest: string;
}

const decoder = new TextDecoder();

/**
 * The text of a body, without its byte order mark, once its size and nesting are within the bounds of its kind.
 *
 * @throws ArgumentError `E_ARGUMENT` for a body over a bound.
 * @throws UnreadableBodyError `E_ARGUMENT`, 400, for bytes that are not UTF-8: decoding would replace them and keep no trace.
 */
export function bodyText(kind: RequestKind, bytes: Uint8Array): string {
  checkJsonSize(bytes, REQUEST_LIMITS[kind].body);
  if (!isUtf8(bytes)) throw new UnreadableBodyError("Expected a body in UTF-8, got other bytes. Encode the text as UTF-8");
  return decoder.decode(bytes);
}

/**
 * Reads and validates a JSON body.
 *
 * @throws ArgumentError `E_ARGUMENT` for a body over its bounds, that is not JSON, or that its schema does not accept.
 */
export function readBody<K extends PlainKind>(kind: K, bytes: Uint8Array): JsonBody<PlainBody<K>> {
  const text = bodyText(kind, bytes);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    const got = text === "" ? "an empty body" : cause instanceof Error ? cause.message : "something else";
    throw new ArgumentError(`Expected a JSON body, got ${got}`, { cause });
  }
  checkFieldLimits(parsed, REQUEST_LIMITS[kind].fields);
  return { value: validate(SCHEMAS[kind], parsed) as PlainBody<K>, digest: createHash("sha256").update(bytes).digest("hex") };
}
