/** JSON bodies by kind of request: limits, schemas and parsing. */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { z } from "zod";
import { ArgumentError } from "../../base/errors.ts";
import {
  addBaseModelRequest,
  addRolloutGroupsRequest,
  createArtifactRequest,
  createKeyRequest,
  entityLimits,
  keyLimits,
  createFineTuningJobRequest,
  createModelRequest,
  createRolloutPlanRequest,
  createSessionRequest,
  fineTuningMethod,
  finishSessionRequest,
  rotateKeyRequest,
  runGraderRequest,
  sessionMetricsRequest,
  sessionRewardRequest,
  createRlJobRequest,
  createPreferenceJobRequest,
  createSftJobRequest,
  deleteCheckpointsRequest,
  drainUpstreamRequest,
  extendLeasesRequest,
  leaseRolloutsRequest,
  releaseLeasesRequest,
  rolloutOutcome,
  trajectoryGroup,
  validateGraderRequest,
} from "../../base/schema/index.ts";
import { checkJsonSize } from "../../base/util/json-size.ts";
import { loneSurrogateIn } from "../../base/util/lone-surrogate.ts";
import { messageOf } from "../../base/util/values.ts";
import { UnreadableBodyError } from "./errors.ts";
import { checkFieldLimits, REQUEST_LIMITS, type RequestKind } from "./request-limits.ts";
import { requireValid } from "../../base/util/validation.ts";

/** Schema of an RL request without validation of its trajectories, which are validated one by one. */
const rlEnvelope = createRlJobRequest.extend({
  trajectory_groups: z.array(trajectoryGroup.extend({ trajectories: z.array(z.unknown()) })).min(1),
});
/** RL request with trajectories that are not validated yet. */
export type RlEnvelope = z.output<typeof rlEnvelope>;

/** Member for a grader without validation: `whetstone/graders` checks it later, with errors that name unsupported parts. */
const uncheckedGrader = { grader: z.unknown() };
const uncheckedReinforcement = fineTuningMethod.shape.reinforcement.unwrap().unwrap().extend(uncheckedGrader);

/** Schemas of bodies by kind of request. Chat completions have no single schema; `readChat` validates them. */
const SCHEMAS = {
  model: createModelRequest,
  baseModel: addBaseModelRequest,
  checkpoints: deleteCheckpointsRequest,
  artifact: createArtifactRequest,
  sft: createSftJobRequest,
  preference: createPreferenceJobRequest,
  rl: rlEnvelope,
  fineTuning: createFineTuningJobRequest.extend({
    method: fineTuningMethod.extend({ reinforcement: uncheckedReinforcement.nullish() }).nullish(),
  }),
  graderRun: runGraderRequest.extend(uncheckedGrader),
  graderCheck: validateGraderRequest.extend(uncheckedGrader),
  session: createSessionRequest,
  sessionReward: sessionRewardRequest,
  sessionMetrics: sessionMetricsRequest,
  sessionFinish: finishSessionRequest,
  key: createKeyRequest,
  keyRotation: rotateKeyRequest,
  keyLimits,
  entityLimits,
  drainUpstream: drainUpstreamRequest,
  rolloutPlan: createRolloutPlanRequest,
  rolloutGroups: addRolloutGroupsRequest,
  rolloutLease: leaseRolloutsRequest,
  rolloutHeartbeat: extendLeasesRequest,
  rolloutRelease: releaseLeasesRequest,
  // The trajectory is validated by `checkOutcome`, several times faster.
  rolloutOutcome: rolloutOutcome.extend({ trajectory: z.unknown().optional() }),
} as const satisfies Readonly<Record<Exclude<RequestKind, "chat">, z.ZodType>>;

/** Kind of a request with a single schema for its complete body. */
export type PlainKind = keyof typeof SCHEMAS;

/** Validated body of a kind of request. */
export type PlainBody<K extends PlainKind> = z.output<(typeof SCHEMAS)[K]>;

/** Request of a fine-tuning job with a grader that is not checked yet. */
export type FineTuningRequest = PlainBody<"fineTuning">;

/** Validated JSON body with a digest for idempotency. */
export interface JsonBody<T> {
  readonly value: T;
  /** SHA-256 of the raw body, hexadecimal. */
  readonly digest: string;
}

const decoder = new TextDecoder();

/**
 * Checks the size and nesting of a body and decodes it, without its byte order mark.
 *
 * @throws ArgumentError `E_ARGUMENT` for a body over a limit.
 * @throws UnreadableBodyError `E_ARGUMENT`, status 400, for invalid UTF-8 and for half of a surrogate pair as escape sequence, which
 *   decoding and encoding would silently replace.
 */
export function bodyText(kind: RequestKind, bytes: Uint8Array): string {
  checkJsonSize(bytes, REQUEST_LIMITS[kind].body);
  if (!isUtf8(bytes)) throw new UnreadableBodyError("Expected a body in UTF-8, got other bytes. Encode the text as UTF-8");
  const text = decoder.decode(bytes);
  const lone = loneSurrogateIn(text);
  if (lone !== null) {
    throw new UnreadableBodyError(
      `Expected strings of characters, got half of a surrogate pair: the escape sequence ${lone} alone. Send both halves, or the character in UTF-8`,
    );
  }
  return text;
}

/**
 * Parses and validates a JSON body.
 *
 * @throws ArgumentError `E_ARGUMENT` for a body that exceeds a limit, is not JSON, or violates its schema.
 */
export function readBody<K extends PlainKind>(kind: K, bytes: Uint8Array): JsonBody<PlainBody<K>> {
  const text = bodyText(kind, bytes);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    const got = text === "" ? "an empty body" : messageOf(cause);
    throw new ArgumentError(`Expected a JSON body, got ${got}`, { cause });
  }
  checkFieldLimits(parsed, REQUEST_LIMITS[kind].fields);
  return { value: requireValid(SCHEMAS[kind], parsed) as PlainBody<K>, digest: createHash("sha256").update(bytes).digest("hex") };
}
