/** Agents of unmodified packages on the Responses and Messages APIs: each prompt starts with the ids of the last turn. */
import { expect, it } from "vitest";
import { ANSWERS, conversation, startHarness } from "../capture/support.ts";
import { PLAYS } from "./dialect-plays.ts";

it.each(Object.keys(PLAYS).flatMap((name) => [true, false].map((isStreaming) => [name, isStreaming] as const)))(
  "%s runs tools and keeps the sampled ids, streaming: %s",
  async (name, isStreaming) => {
    const harness = await startHarness(conversation);
    expect(await PLAYS[name]!(harness, isStreaming)).toEqual(ANSWERS);
    expect(harness.sampled).toHaveLength(4);
    for (const [index, { prompt, ids }] of harness.sampled.slice(0, -1).entries()) {
      const next = harness.sampled[index + 1]!;
      expect(next.prompt.slice(0, prompt.length + ids.length), `turn ${index + 1}`).toEqual([...prompt, ...ids]);
    }
  },
);
