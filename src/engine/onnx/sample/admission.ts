/** Admission: selects the waiting requests to prefill next, and the prompts to prefill together. */
import type { SamplingPlace } from "./place.ts";
import { paddedLength, type PrefillTask, type SharedPrompt } from "./prefill.ts";
import { BLOCK_TOKENS, type PrefixCache, type StoredBlock } from "./prefix-cache.ts";
import type { WaitingQueue } from "./queue.ts";
import { cacheScope, mayShare, priorityOf, type Request } from "./request.ts";
import { first, itemAt } from "../../../base/util/values.ts";

/** Limits of {@link admit}. */
export interface AdmissionLimits {
  /** Number of free rows. */
  readonly room: number;
  /** Max tokens to compute at once. */
  readonly maxTokens: number;
  /** Place that computes the prompts. */
  readonly place: Pick<SamplingPlace, "maxPiece" | "minSharedPrefix" | "continuesSeveral">;
}

/**
 * Max tokens, cached ones included, of prompts that are prefilled together. The keys and values of all of them are in memory at once, and are
 * copied once per layer: 190 MB for a model of 135 M weights.
 */
const MAX_KEYS_TOKENS = 4096;

/** Prompts taken off the queue, to be prefilled together. */
export interface AdmittedPrompts {
  readonly prompts: readonly SharedPrompt[];
  /** Cached blocks that each prompt begins with, as many for each. */
  readonly known: readonly (readonly StoredBlock[])[];
}

/**
 * Takes a waiting request off the queue, together with other requests for the same prompt, and with other prompts of the same batch that can
 * be computed at once, up to `maxTokens` tokens: they have the same padded length, and cached prefixes at least as long as the first prompt's,
 * of which as many blocks are used. Where a place continues one prompt at a time, no cached prefix of at least `minSharedPrefix`
 * tokens may be left unused. Of prompts that agree in `minSharedPrefix` further tokens only one is taken, if there is a cache: the others
 * find its blocks in it later.
 *
 * @param first - Request to take, with the highest priority in the queue.
 * @returns Null if no row is free.
 */
export function admit(
  queue: WaitingQueue,
  first: Request,
  prefixes: PrefixCache,
  { room, maxTokens, place }: AdmissionLimits,
): AdmittedPrompts | null {
  const { maxPiece, minSharedPrefix, continuesSeveral } = place;
  if (room <= 0) return null;
  const takeFirst = (): SharedPrompt => ({ prompt: first.prompt, requests: queue.remove((request) => request === first) });
  if (isScored(first)) return { prompts: [takeFirst()], known: [[]] };
  // Whether a cached prefix is long enough for a separate prefill.
  const isWorthIt = (blocks: readonly StoredBlock[]) => blocks.length * BLOCK_TOKENS >= minSharedPrefix;
  const known = [knownBlocks(prefixes, first)];
  const usedBlocks = continuesSeveral ? itemAt(known, 0).length : 0;
  const time = paddedLength(first.prompt.length);
  const newTokens = time - usedBlocks * BLOCK_TOKENS;
  const maxPrompts = Math.min(Math.floor(maxTokens / newTokens), Math.floor(MAX_KEYS_TOKENS / time));
  // No other prompt can be computed together with this one.
  const isAlone = (!continuesSeveral && isWorthIt(itemAt(known, 0))) || maxPrompts < 2 || time > maxPiece;
  // If more requests wait than rows are free, no request may overtake one of higher priority.
  const mayJump = queue.length <= room;
  const prompts = [takeFirst()];
  let taken = 1;
  queue.remove((request) => {
    if (taken >= room || isScored(request) || request.policy.batchKey !== first.policy.batchKey) return false;
    if (!mayJump && priorityOf(request) !== priorityOf(first)) return false;
    const same = prompts.find(({ requests }) => isSamePrompt(itemAt(requests, 0), request));
    if (same) same.requests.push(request);
    else {
      if (isAlone || prompts.length >= maxPrompts || paddedLength(request.prompt.length) !== time) return false;
      const blocks = knownBlocks(prefixes, request);
      if (continuesSeveral ? blocks.length < usedBlocks : isWorthIt(blocks)) return false;
      const agreed = usedBlocks * BLOCK_TOKENS + minSharedPrefix;
      if (prefixes.isEnabled && prompts.some(({ requests }) => haveSamePrefix(itemAt(requests, 0), request, agreed))) return false;
      prompts.push({ prompt: request.prompt, requests: [request] });
      known.push(blocks);
    }
    taken++;
    return true;
  });
  return { prompts, known: prompts.length === 1 ? known : known.map((blocks) => blocks.slice(0, usedBlocks)) };
}

/** Returns the cached blocks that a request's prompt begins with. */
function knownBlocks(prefixes: PrefixCache, request: Request): StoredBlock[] {
  return prefixes.find(request.policy, cacheScope(request), request.prompt);
}

/** Whether the request asks for log-probabilities of its prompt. Such a prompt is computed alone, from its start. */
export function isScored(request: Request): boolean {
  return request.params.promptLogprobs !== undefined;
}

function isSamePrompt(a: Request, b: Request): boolean {
  return mayShare(a, b) && a.prompt.length === b.prompt.length && agree(a.prompt, b.prompt, a.prompt.length);
}

function haveSamePrefix(a: Request, b: Request, length: number): boolean {
  return mayShare(a, b) && Math.min(a.prompt.length, b.prompt.length) > length && agree(a.prompt, b.prompt, length);
}

/** Whether the first `length` tokens of two prompts are equal. */
function agree(a: Int32Array, b: Int32Array, length: number): boolean {
  for (let t = 0; t < length; t++) if (a[t] !== b[t]) return false;
  return true;
}

/**
 * Max long prompts that are prefilled in turns; further ones wait, unless they have a higher priority or are the first ones of a client.
 * Each holds memory for all its keys. Shorter prompts do not wait for this limit.
 */
const MAX_LONG_TASKS = 4;
/** Number of tokens above which a prompt counts as long. */
const LONG_TOKENS = 1024;

/**
 * Whether the prefill of a waiting request may start. The request waits if its prompt is long and {@link MAX_LONG_TASKS} long prompts are
 * being prefilled, or if a task will soon add the first blocks of its prompt to the prefix cache.
 *
 * @param minSharedPrefix - Min tokens of blocks worth waiting for; null without a prefix cache.
 */
export function mayStart(request: Request, tasks: readonly PrefillTask[], minSharedPrefix: number | null): boolean {
  const { length } = request.prompt;
  if (minSharedPrefix !== null && !isScored(request) && tasks.some((task) => task.willStore(request, minSharedPrefix))) return false;
  if (length <= LONG_TOKENS) return true;
  const isOwn = (other: Request) => other.group.client === request.group.client;
  const others = tasks.filter(({ tokens }) => tokens > LONG_TOKENS).map(({ requests }) => first(requests));
  const ahead = others.filter((other) => !isOwn(other) || priorityOf(other) <= priorityOf(request));
  return ahead.length < MAX_LONG_TASKS || !ahead.some(isOwn);
}
