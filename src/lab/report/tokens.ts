/** Conversion of a sampled turn to tokens that a page can show. */
import type { AssistantChoice, LogprobEntry } from "../../base/schema/index.ts";
import type { TrainedTurn } from "../../run/read-groups.ts";
import type { SampledData } from "./page-data.ts";

/**
 * Returns the text of each token; their concatenation is the text of the turn. If a character is split across tokens, the token that
 * completes it shows it, and the earlier tokens show their bytes, `‹e2 82›`.
 */
export function tokenTexts(entries: readonly LogprobEntry[]): string[] {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return entries.map(({ token, bytes }, index) => {
    // A token without bytes: the incomplete character before it becomes a replacement character.
    if (!bytes) return decoder.decode() + token;
    const isLast = index === entries.length - 1;
    const text = decoder.decode(Uint8Array.from(bytes), { stream: !isLast });
    return text === "" && bytes.length > 0 ? hexadecimal(bytes) : text;
  });
}

/** Returns bytes as text: `‹e2 82›`. */
function hexadecimal(bytes: readonly number[]): string {
  return `‹${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}›`;
}

/** Converts a sampled turn for the page. Arrays of inconsistent length are omitted and reported in `notes`. */
export function sampledData(choice: AssistantChoice, trained: TrainedTurn | undefined): SampledData {
  const entries = choice.logprobs?.content ?? [];
  const ids = choice.token_ids ?? null;
  const notes: string[] = [];
  if (entries.length === 0) notes.push("The turn was stored without log-probabilities, so its tokens cannot be shown.");
  const hasIds = ids !== null && ids.length === entries.length;
  if (ids !== null && entries.length > 0 && !hasIds) {
    notes.push(`The turn has ${ids.length} token ids and ${entries.length} log-probabilities; the ids are left out.`);
  }
  const trainerLogprobs = trained?.logprobs ?? null;
  const hasTrainerLogprobs = trainerLogprobs !== null && entries.length > 0 && trainerLogprobs.length === entries.length;
  if (trainerLogprobs !== null && !hasTrainerLogprobs) {
    notes.push(`The trainer reported ${trainerLogprobs.length} log-probabilities for ${entries.length} sampled tokens; they are left out.`);
  }
  return {
    texts: tokenTexts(entries),
    ids: hasIds ? ids : null,
    logprobs: entries.length === 0 ? null : entries.map(({ logprob }) => rounded(logprob)),
    trained: hasTrainerLogprobs ? trainerLogprobs.map((value) => (value === null ? null : rounded(value))) : null,
    advantage: trained?.advantage ?? null,
    advantages: hasTrainerLogprobs && trained?.advantages?.length === entries.length ? trained.advantages : null,
    promptTokens: choice.prompt_token_ids?.length ?? null,
    finish: choice.finish_reason ?? null,
    policy: choice.policy_version ?? null,
    notes,
  };
}

/** Rounds nats to four decimals, which takes a third of the bytes. */
function rounded(value: number): number {
  return Math.round(value * 1e4) / 1e4;
}
