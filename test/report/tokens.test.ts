import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { assistantChoice } from "../../src/base/schema/index.ts";
import { sampledData, tokenTexts } from "../../src/lab/report/tokens.ts";
import { sampled } from "./run-fixture.ts";

const entry = (token: string, bytes: readonly number[] | null) => ({ token, logprob: -1, bytes: bytes && [...bytes], top_logprobs: [] });

describe("tokenTexts", () => {
  it("shows a character at the token that completes it, and bytes of incomplete characters", () => {
    const texts = tokenTexts([entry("", [0xe2, 0x82]), entry("", [0xac, 0x41]), entry("plain", null), entry("", [0xe2])]);
    expect(texts).toEqual(["‹e2 82›", "€A", "plain", "\u{fffd}"]);
  });

  it("joins to the original text for any token boundaries", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", minLength: 1 }), { minLength: 1 }), (parts) => {
        const texts = tokenTexts(parts.map((part) => entry("", [...new TextEncoder().encode(part)])));
        expect(texts.join("")).toBe(parts.join(""));
      }),
    );
  });

  it("keeps a sampled byte order mark", () => {
    expect(tokenTexts([entry("", [0xef, 0xbb, 0xbf, 0x41])])).toEqual(["\u{feff}A"]);
  });
});

describe("sampledData", () => {
  const choice = assistantChoice.parse(sampled());

  it("has the advantage of each token if they differ, and null for a token that was not trained", () => {
    const trained = { advantage: 0.5, advantages: [1, 0, 0, 0.5], logprobs: [-0.123456, null, -0.5, -1] };
    expect(sampledData(choice, trained)).toMatchObject({ advantage: 0.5, advantages: [1, 0, 0, 0.5], trained: [-0.1235, null, -0.5, -1] });
    expect(sampledData(choice, { ...trained, advantages: [1] }).advantages).toBeNull();
  });

  it("aligns texts, ids, sampled and trained log-probabilities", () => {
    const found = sampledData(choice, { advantage: 0.5, logprobs: [-0.11, -0.22, -0.33, -0.44] });
    expect(found).toEqual({
      texts: ["cost ", "‹e2 82›", "€", "\n"],
      ids: [100, 101, 102, 103],
      logprobs: [-0.1, -0.2, -0.3, -0.4],
      trained: [-0.11, -0.22, -0.33, -0.44],
      advantage: 0.5,
      advantages: null,
      promptTokens: 3,
      finish: "stop",
      policy: 4,
      notes: [],
    });
  });

  it("omits data of the wrong length, and reports it", () => {
    const found = sampledData({ ...choice, token_ids: [1] }, { advantage: null, logprobs: [-1] });
    expect(found.ids).toBeNull();
    expect(found.trained).toBeNull();
    expect(found.notes).toEqual([
      "The turn has 1 token ids and 4 log-probabilities; the ids are left out.",
      "The trainer reported 1 log-probabilities for 4 sampled tokens; they are left out.",
    ]);
    expect(sampledData({ ...choice, logprobs: null }, undefined).notes).toEqual([
      "The turn was stored without log-probabilities, so its tokens cannot be shown.",
    ]);
  });
});
