/** Admission: selects the waiting requests to prefill next, and the prompts to prefill together. */
import { paddedLength, type SharedPrompt } from "./prefill.ts";
import { BLOCK_TOKENS, type PrefixCache } from "./prefix-cache.ts";
import type { WaitingQueue } from "./queue.ts";
import { priorityOf, type Request } from "./request.ts";

/** Limits of {@link admit}. */
export interface AdmissionLimits {
  /** Number of free rows. */
  readonly room: number;
  /** Max tokens to compute at once. */
  readonly maxTokens: number;
  /** Max tokens of each of several prompts. */
  readonly maxPiece: number;
}

/** Prompts taken off the queue, to be prefilled together. */
export interface Admission {
  readonly prompts: readonly SharedPrompt[];
  /** Cached blocks that a single prompt begins with; empty for several prompts. */
  readonly known: readonly Float32Array[];
}

/**
 * Min length of a cached prefix, in tokens, that is worth a separate prefill. Prompts with a cached prefix are prefilled one at a time;
 * with a shorter prefix, computing many prompts at once from their start finishes sooner.
 */
const WORTH_TOKENS = 4 * BLOCK_TOKENS;

/**
 * Takes the first waiting request off the queue, together with other requests for the same prompt. If the cached prefix of that prompt is
 * shorter than {@link WORTH_TOKENS}, also takes other prompts of the same batch and padded length with as short a cached prefix, up to
 * `maxTokens` tokens. Of prompts with the same first {@link WORTH_TOKENS} tokens only one is taken, if there is a cache: the others find its
 * blocks in it later.
 *
 * @returns Null if no request waits or no row is free.
 */
export function admit(queue: WaitingQueue, prefixes: PrefixCache, limits: AdmissionLimits): Admission | null {
  const { room, maxTokens, maxPiece } = limits;
  const { first } = queue;
  if (!first || room <= 0) return null;
  if (isScored(first)) return { prompts: shareOf(queue.take((request) => request === first)), known: [] };
  const known = knownBlocks(prefixes, first);
  const time = paddedLength(first.prompt.length);
  const isAlone = isWorthIt(known) || 2 * time > maxTokens || time > maxPiece;
  // If more requests wait than rows are free, no request may overtake one of higher priority.
  const mayJump = queue.length <= room;
  const prompts: SharedPrompt[] = [];
  let taken = 0;
  queue.take((request) => {
    if (taken >= room || isScored(request) || request.policy.batchKey !== first.policy.batchKey) return false;
    if (!mayJump && priorityOf(request) !== priorityOf(first)) return false;
    const same = prompts.find(({ requests }) => isSamePrompt(requests[0]!, request));
    if (same) same.requests.push(request);
    else if (prompts.length === 0) prompts.push({ prompt: request.prompt, requests: [request] });
    else if (isAlone || (prompts.length + 1) * time > maxTokens || paddedLength(request.prompt.length) !== time) return false;
    else if (isWorthIt(knownBlocks(prefixes, request))) return false;
    else if (prefixes.isEnabled && prompts.some(({ requests }) => haveSamePrefix(requests[0]!, request))) return false;
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

/** Whether the request asks for log-probabilities of its prompt. Such a prompt is computed alone, from its start. */
function isScored(request: Request): boolean {
  return request.params.promptLogprobs !== undefined;
}

function mayShare(a: Request, b: Request): boolean {
  return a.policy === b.policy && a.params.cacheSalt === b.params.cacheSalt;
}

function isSamePrompt(a: Request, b: Request): boolean {
  return mayShare(a, b) && a.prompt.length === b.prompt.length && agree(a.prompt, b.prompt, a.prompt.length);
}

function haveSamePrefix(a: Request, b: Request): boolean {
  return mayShare(a, b) && Math.min(a.prompt.length, b.prompt.length) > WORTH_TOKENS && agree(a.prompt, b.prompt, WORTH_TOKENS);
}

function agree(a: Int32Array, b: Int32Array, length: number): boolean {
  for (let t = 0; t < length; t++) if (a[t] !== b[t]) return false;
  return true;
}
