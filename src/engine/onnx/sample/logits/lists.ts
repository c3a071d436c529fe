/**
 * Rule lists of a request as flat arrays in shared memory: built once per request, and read by all of its choices on every thread. A
 * structured clone per choice would take milliseconds for a list as long as the vocabulary.
 */
import type { SamplingParams } from "../../../port.ts";

/** Banned sequences, one after another: sequence `i` is `tokens[starts[i]]` to `tokens[starts[i + 1] - 1]`. */
export interface BannedSequences {
  readonly tokens: Int32Array;
  readonly starts: Int32Array;
}

/** Biases by token: `values[i]` for token `ids[i]`. */
export interface LogitBias {
  readonly ids: Int32Array;
  readonly values: Float64Array;
}

/** Rule lists of a request; null for a list that the request does not have. */
export interface RuleLists {
  /** 1 for each allowed id, by id; ids beyond the end are not allowed. */
  readonly allowed: Uint8Array | null;
  readonly banned: BannedSequences | null;
  readonly bias: LogitBias | null;
}

/** Request parameters as sent to a sampler. */
export type SentParams = Omit<SamplingParams, "constraint" | "allowedTokenIds" | "bannedSequences" | "logitBias"> & {
  readonly lists: RuleLists;
};

function shared(bytes: number): SharedArrayBuffer {
  return new SharedArrayBuffer(bytes);
}

function toAllowed(ids: readonly number[]): Uint8Array {
  const last = ids.reduce((max, id) => Math.max(max, id), -1);
  const allowed = new Uint8Array(shared(last + 1));
  for (const id of ids) allowed[id] = 1;
  return allowed;
}

function toBanned(sequences: readonly (readonly number[])[]): BannedSequences {
  const total = sequences.reduce((sum, { length }) => sum + length, 0);
  const tokens = new Int32Array(shared(4 * total));
  const starts = new Int32Array(shared(4 * (sequences.length + 1)));
  let offset = 0;
  for (const [index, sequence] of sequences.entries()) {
    tokens.set(sequence, offset);
    starts[index + 1] = offset += sequence.length;
  }
  return { tokens, starts };
}

function toBias(bias: ReadonlyMap<number, number>): LogitBias {
  const [ids, values] = [new Int32Array(shared(4 * bias.size)), new Float64Array(shared(8 * bias.size))];
  let index = 0;
  for (const [id, value] of bias) [ids[index], values[index++]] = [id, value];
  return { ids, values };
}

/** Lists built before, by their source. */
const known = new WeakMap<object, unknown>();

/** Returns the list built from `source`. Built once, because the choices of a request have the same source. */
function once<S extends object, T>(source: S | undefined, make: (source: S) => T): T | null {
  if (source === undefined) return null;
  const made = (known.get(source) as T | undefined) ?? make(source);
  known.set(source, made);
  return made;
}

/** Returns the rule lists of a request. */
export function ruleLists({ allowedTokenIds, bannedSequences, logitBias }: SamplingParams): RuleLists {
  return {
    allowed: once(allowedTokenIds, toAllowed),
    banned: once(bannedSequences?.length === 0 ? undefined : bannedSequences, toBanned),
    bias: once(logitBias?.size === 0 ? undefined : logitBias, toBias),
  };
}

/** Returns the parameters with their lists in shared memory. */
export function toSent(params: SamplingParams): SentParams {
  const { constraint: _, allowedTokenIds: _ids, bannedSequences: _sequences, logitBias: _bias, ...rest } = params;
  return { ...rest, lists: ruleLists(params) };
}
