/** The grammars of requests: lists of any length, and what of them is kept. */
import { describe, expect, it } from "vitest";
import { OutputGrammars } from "../../../../src/service/chat/structured/output-grammar.ts";
import type { OutputForm } from "../../../../src/service/chat/structured/output-request.ts";
import { languageOf } from "./support.ts";

const grammarOf = async (grammars: OutputGrammars, form: OutputForm) =>
  (await grammars.compile({ form, whitespacePattern: null, closesObjects: false }, { reasoningEnd: null })).grammar;

describe("the grammars of requests", () => {
  it("may be a choice of very many texts", async () => {
    const options = [...Array.from({ length: 150_000 }, () => "a"), "b"];
    const language = languageOf(await grammarOf(new OutputGrammars(), { kind: "choice", options }));
    expect(["a", "b", "c"].map((text) => language.accepts(text))).toEqual([true, true, false]);
  });

  it("refuse a choice of half a character", async () => {
    await expect(grammarOf(new OutputGrammars(), { kind: "choice", options: ["a", "\ud800"] })).rejects.toThrow(/surrogate/);
  });

  it("are kept while they are few, and the large ones while they are fewer", async () => {
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
