/** Grammars of requests: long lists of choices, and the cache. */
import { describe, expect, it } from "vitest";
import { OutputGrammars } from "../../../../src/service/chat/generate/output-grammar.ts";
import type { OutputForm } from "../../../../src/service/chat/request/output-request.ts";
import { languageOf } from "../../../grammar/compile/support.ts";

const grammarOf = async (grammars: OutputGrammars, form: OutputForm) =>
  (await grammars.compile({ form, whitespacePattern: null, closesObjects: false }, { reasoningEnd: null })).grammar;

describe("the grammars of requests", () => {
  it("support a choice of 150,000 strings", async () => {
    const options = [...Array.from({ length: 150_000 }, () => "a"), "b"];
    const language = languageOf(await grammarOf(new OutputGrammars(), { kind: "choice", options }));
    expect(["a", "b", "c"].map((text) => language.accepts(text))).toEqual([true, true, false]);
  });

  it("reject a choice with half of a surrogate pair", async () => {
    await expect(grammarOf(new OutputGrammars(), { kind: "choice", options: ["a", "\ud800"] })).rejects.toThrow(/surrogate/);
  });

  it("are cached up to a limit, with a lower limit for large grammars", async () => {
    const grammars = new OutputGrammars();
    const small = (at: number): OutputForm => ({ kind: "regex", pattern: `small ${at}` });
    const large = (at: number): OutputForm => ({ kind: "regex", pattern: `(?:a?){0,60000}${at}` });
    const first = await grammarOf(grammars, small(0));
    for (let at = 1; at < 60; at++) await grammarOf(grammars, small(at));
    expect(await grammarOf(grammars, small(0))).toBe(first);
    const largest = await grammarOf(grammars, large(0));
    expect(await grammarOf(grammars, large(0))).toBe(largest);
    for (let at = 1; at < 10; at++) await grammarOf(grammars, large(at));
    expect(await grammarOf(grammars, large(0))).not.toBe(largest);
  });
});
