/** Which waiting requests are prefilled next, and which of them together. */
import { paddedLength, type SharedPrompt } from "./prefill.ts";
import { BLOCK_TOKENS, type PrefixCache } from "./prefix-cache.ts";
import type { WaitingQueue } from "./queue.ts";
import { priorityOf, type Request } from "./request.ts";

/** Limits of {@link admit}. */
export interface AdmissionLimits {
  /** Rows that are free. */
  readonly room: number;
  /** Tokens that may be computed at once. */
  readonly most: number;
}

/** Prompts that are prefilled together, off the queue. */
export interface Admission {
  readonly prompts: readonly SharedPrompt[];
  /** The blocks that a single prompt begins with. */
  readonly known: readonly Float32Array[];
}

/**
 * From how many tokens on a beginning is worth its own run. Known beginnings are continued one prompt at a time, so for fewer
 * tokens many prompts at once, each from its start, are sooner done.
 */
const WORTH_TOKENS = 4 * BLOCK_TOKENS;

/**
 * Takes the first waiting request off the queue and, with it, those of the same prompt. Where too little of its prompt is
 * known to be worth a run of its own, other such prompts of its padded length come along, as long as their beginnings are
 * not worth one either: of prompts that begin alike for long one goes ahead, and the others find its blocks in the cache.
 *
 * @returns Null when nobody waits or there is no room.
 */
export function admit(queue: WaitingQueue, prefixes: PrefixCache, { room, most }: AdmissionLimits): Admission | null {
  const { first } = queue;
  if (!first || room <= 0) return null;
  if (isScored(first)) return { prompts: shareOf(queue.take((request) => request === first)), known: [] };
  const known = knownBlocks(prefixes, first);
  const time = paddedLength(first.prompt.length);
  const isAlone = isWorthIt(known) || 2 * time > most;
  // Rows may be too few: none goes to a request that others with more urgency are before.
  const mayJump = queue.length <= room;
  const prompts: SharedPrompt[] = [];
  let taken = 0;
  queue.take((request) => {
    if (taken >= room || isScored(request) || request.policy.batchKey !== first.policy.batchKey) return false;
    if (!mayJump && priorityOf(request) !== priorityOf(first)) return false;
    const same = prompts.find(({ requests }) => isSamePrompt(requests[0]!, request));
    if (same) same.requests.push(request);
    else if (prompts.length === 0) prompts.push({ prompt: request.prompt, requests: [request] });
    else if (isAlone || (prompts.length + 1) * time > most || paddedLength(request.prompt.length) !== time) return false;
    else if (prompts.some(({ requests }) => beginAlike(requests[0]!, request)) || isWorthIt(knownBlocks(prefixes, request))) return false;
    else prompts.push({ prompt: request.prompt, requests: [request] });
    taken++;
    return true;
  });
  return { prompts, known: prompts.length === 1 ? known : [] };
}

function isWorthIt(known: readonly Float32Array[]): boolean {
  return known.length * BLOCK_TOKENS >= WORTH_TOKENS;
}

function shareOf(requests: Request[]): SharedPrompt[] {
  return [{ prompt: requests[0]!.prompt, requests }];
}

function knownBlocks(prefixes: PrefixCache, { policy, params, prompt }: Request): Float32Array[] {
  return prefixes.find(policy, params.cacheSalt ?? null, prompt);
}

/** A prompt whose own tokens are asked for is computed for itself, from its start. */
function isScored(request: Request): boolean {
  return request.params.promptLogprobs !== undefined;
}

function mayShare(a: Request, b: Request): boolean {
  return a.policy === b.policy && a.params.cacheSalt === b.params.cacheSalt;
}

function isSamePrompt(a: Request, b: Request): boolean {
  return mayShare(a, b) && a.prompt.length === b.prompt.length && agree(a.prompt, b.prompt, a.prompt.length);
}

function beginAlike(a: Request, b: Request): boolean {
  return mayShare(a, b) && Math.min(a.prompt.length, b.prompt.length) > WORTH_TOKENS && agree(a.prompt, b.prompt, WORTH_TOKENS);
}

function agree(a: Int32Array, b: Int32Array, length: number): boolean {
  for (let t = 0; t < length; t++) if (a[t] !== b[t]) return false;
  return true;
}
