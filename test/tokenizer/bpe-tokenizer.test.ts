import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError, NotFoundError, UnsupportedError } from "../../src/base/errors.ts";
import { type ChatTokenizer, createDetokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory, modelFiles, SPECIAL, sharedModel } from "./fixture.ts";

const { directory, tokenizer } = await sharedModel();

// Text without added tokens, which encode to structural tokens.
const anyText = fc.string({ unit: "binary" });

describe("encode and decode", () => {
  propertyTest.prop([anyText])("round-trip any text", (text) => {
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
  });

  it("applies merges and recognizes added tokens inside text", () => {
    expect([...tokenizer.encode("hello")]).toEqual([259]);
    expect([...tokenizer.encode("<|user|>hello w")]).toEqual([262, 259, 260]);
    expect([...tokenizer.encode("")]).toEqual([]);
  });

  propertyTest.prop([anyText, fc.nat(12)])("the tail of a text has the last ids of the whole text", (text, tail) => {
    const given = `${text}<|user|>${text} hello`;
    expect([...tokenizer.encode(given, { tail })]).toEqual(tail === 0 ? [] : [...tokenizer.encode(given)].slice(-tail));
  });

  it("encodes the tail of a text without the words before it, and rejects a tail within a word that is too long", () => {
    const long = "x".repeat(524_289);
    expect([...tokenizer.encode(`${long}<|user|>hello`, { tail: 2 })]).toEqual([262, 259]);
    expect(() => tokenizer.encode(`${long}<|user|>hello`, { tail: 3 })).toThrow(/at most 524288 characters/);
  });

  it("omits special tokens on request", () => {
    const ids = tokenizer.encode("<|user|>hello<|end|>");
    expect(tokenizer.decode(ids)).toBe("<|user|>hello<|end|>");
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe("hello");
  });

  it("decodes a lone surrogate as U+FFFD", () => {
    expect(tokenizer.decode(tokenizer.encode("a\ud800b"))).toBe("a\ufffdb");
  });

  it("keeps spaces that an English clean-up would remove", () => {
    expect(tokenizer.decode(tokenizer.encode("do n't , stop ."))).toBe("do n't , stop .");
  });
});

describe("tokenBytes", () => {
  it("maps the 256 byte tokens to their bytes", () => {
    for (let byte = 0; byte < 256; byte++) expect([...tokenizer.tokenBytes(byte)]).toEqual([byte]);
  });

  propertyTest.prop([anyText])("concatenates to the UTF-8 of the text", (text) => {
    const bytes = [...tokenizer.encode(text)].flatMap((id) => [...tokenizer.tokenBytes(id)]);
    expect(bytes).toEqual([...new TextEncoder().encode(text)]);
  });

  it("returns the text of added tokens and no bytes for padding rows", () => {
    expect(new TextDecoder().decode(tokenizer.tokenBytes(262))).toBe("<|user|>");
    expect(tokenizer.tokenBytes(tokenizer.vocabularySize - 1)).toHaveLength(0);
    expect(tokenizer.tokenText(260)).toBe(" w");
    expect(tokenizer.tokenText(0xc3)).toBe("\ufffd");
  });

  it.each([-1, 1.5, 10_000, Number.NaN])("rejects the id %d", (id) => {
    expect(() => tokenizer.tokenBytes(id)).toThrow(ArgumentError);
    expect(() => tokenizer.decode([id])).toThrow(/token id in \[0, 269\)/);
  });
});

describe("joins to the result of decode for any ids", () => {
  propertyTest.prop([fc.array(fc.nat(268)), fc.boolean()])("joins to exactly what decode gives, for any ids", (ids, skipSpecialTokens) => {
    const detokenizer = createDetokenizer(tokenizer, { skipSpecialTokens });
    const text = ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush();
    expect(text).toBe(tokenizer.decode(ids, { skipSpecialTokens }));
  });

  it("withholds a character until it is complete", () => {
    const detokenizer = createDetokenizer(tokenizer);
    expect([...new TextEncoder().encode("é😀")].map((byte) => detokenizer.push(byte))).toEqual(["", "é", "", "", "", "😀"]);
    expect(detokenizer.push(0xf0)).toBe("");
    expect(detokenizer.flush()).toBe("\ufffd");
  });
});

describe("loadTokenizer", () => {
  it("reads sizes, structural tokens and the end-of-turn ids, starting with the tokenizer's own", () => {
    expect(tokenizer.vocabularySize).toBe(269);
    expect(tokenizer.eosTokenIds).toEqual([264, 265]);
    expect([...tokenizer.specialTokenIds]).toEqual(SPECIAL.map((_, index) => 261 + index));
    expect(tokenizer.hasChatTemplate).toBe(true);
  });

  it("reads the end of a turn from config.json without a generation config", async () => {
    const path = await modelDirectory({ "generation_config.json": undefined, "config.json": { eos_token_id: 262 } });
    const loaded = await loadTokenizer(path);
    expect(loaded.eosTokenIds).toEqual([264, 262]);
    expect(loaded.vocabularySize).toBe(266);
  });

  it("requires only tokenizer.json, and then has no chat template", async () => {
    const path = await modelDirectory({
      "tokenizer_config.json": undefined,
      "generation_config.json": undefined,
      "config.json": undefined,
    });
    const loaded = await loadTokenizer(path);
    expect(loaded.hasChatTemplate).toBe(false);
    expect(loaded.eosTokenIds).toEqual([]);
    expect(() => loaded.renderChat([{ role: "user", content: "x" }])).toThrow(UnsupportedError);
    expect(() => loaded.renderChat([{ role: "user", content: "x" }])).toThrow(/no chat template/);
  });

  it("prefers chat_template.jinja, and the tool_use template if there are tools", async () => {
    const file = await loadTokenizer(await modelDirectory({ "chat_template.jinja": "from the file" }));
    expect(file.renderChat([])).toBe("from the file");
    const named = [
      { name: "default", template: "plain" },
      { name: "tool_use", template: "{{ tools | length }} tools" },
    ];
    const both = await loadTokenizer(await modelDirectory({ "tokenizer_config.json": { chat_template: named } }));
    expect(both.renderChat([])).toBe("plain");
    expect(both.renderChat([], { tools: [] })).toBe("plain");
    expect(both.renderChat([], { tools: [{}, {}] })).toBe("2 tools");
  });

  it("rejects with the signal's reason", async () => {
    const reason = new Error("enough");
    await expect(loadTokenizer(directory, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });

  it.each([
    ["no tokenizer.json", { "tokenizer.json": undefined }, NotFoundError, /tokenizer\.json/],
    ["a tokenizer.json that is not JSON", { "tokenizer.json": "{" }, DataError, /tokenizer\.json: expected JSON/],
    ["a tokenizer.json without a model", { "tokenizer.json": { added_tokens: [] } }, DataError, /tokenizer\.json: model/],
    [
      "another kind of tokenizer",
      { "tokenizer.json": { ...(modelFiles()["tokenizer.json"] as object), decoder: { type: "Metaspace" } } },
      UnsupportedError,
      /byte-level/,
    ],
    ["an eos_token that does not exist", { "tokenizer_config.json": { eos_token: "<eos>" } }, DataError, /eos_token/],
    [
      "an eos id outside the vocabulary",
      { "generation_config.json": { eos_token_id: 9999 } },
      DataError,
      /generation_config\.json: .*9999/,
    ],
    [
      "an eos id of config.json outside the vocabulary",
      { "generation_config.json": undefined, "config.json": { eos_token_id: 9999 } },
      DataError,
      /[\\/]config\.json: `eos_token_id` 9999/,
    ],
    ["a vocabulary smaller than the tokenizer", { "config.json": { vocab_size: 100 } }, DataError, /vocab_size/],
    [
      "a template that does not parse",
      { "chat_template.jinja": "{% for %}" },
      DataError,
      /chat_template\.jinja: The chat template does not parse/,
    ],
    ["a template over the size limit", { "chat_template.jinja": "x".repeat(70_000) }, DataError, /at most 65536/],
  ])("rejects a directory with %s", async (_, changes, type, message) => {
    const path = await modelDirectory(changes);
    const failure = loadTokenizer(path);
    await expect(failure).rejects.toBeInstanceOf(type);
    await expect(failure).rejects.toThrow(message);
  });

  it("loads a vocabulary without tokens for some bytes, and rejects one without the tokens of its merges", async () => {
    const file = modelFiles()["tokenizer.json"] as { model: { vocab: Record<string, number> } };
    const without = (token: string): unknown => ({
      ...file,
      model: { ...file.model, vocab: Object.fromEntries(Object.entries(file.model.vocab).filter(([name]) => name !== token)) },
    });
    const load = async (token: string): Promise<unknown> =>
      loadTokenizer(await modelDirectory({ "tokenizer.json": JSON.stringify(without(token)) }));
    const partial = (await load("a")) as ChatTokenizer;
    expect([...partial.encode("hahello")]).toEqual([104, 259]);
    expect(partial.renderTraining([{ role: "assistant", content: "a aa" }]).missingBytes).toBe(3);
    await expect(load("l")).rejects.toThrow(/model\.merges\.1 merges "l"/);
    await expect(load("hell")).rejects.toThrow(/model\.merges\.2 makes "hell"/);
  });

  it("adds the post-processor's tokens only on request, and rejects a token that does not exist", async () => {
    const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
    const adding = (content: string): Record<string, unknown> => ({
      ...file,
      post_processor: {
        type: "TemplateProcessing",
        single: [{ SpecialToken: { id: content, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
        pair: [],
        special_tokens: {},
      },
    });
    const good = await loadTokenizer(await modelDirectory({ "tokenizer.json": adding("<|pad|>") }));
    expect([...good.encode("hello")]).toEqual([259]);
    expect([...good.encode("hello", { addSpecialTokens: true })]).toEqual([265, 259]);
    const bad = await loadTokenizer(await modelDirectory({ "tokenizer.json": adding("<bos>") }));
    expect(() => bad.encode("hello", { addSpecialTokens: true })).toThrow(/adds "<bos>"/);
  });

  it.each([
    ["no text", ["<|pad|>", "<|pad|>"]],
    ["two texts", [null, "<|pad|>", null]],
    ["nothing", []],
  ])("rejects a template of the post-processor with %s", async (_, pieces) => {
    const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
    const single = pieces.map((id) => (id === null ? { Sequence: { id: "A", type_id: 0 } } : { SpecialToken: { id, type_id: 0 } }));
    const template = { type: "TemplateProcessing", single, pair: [], special_tokens: {} };
    for (const post_processor of [template, { type: "Sequence", processors: [{ type: "ByteLevel" }, template] }]) {
      const failure = loadTokenizer(await modelDirectory({ "tokenizer.json": { ...file, post_processor } }));
      await expect(failure).rejects.toBeInstanceOf(UnsupportedError);
      await expect(failure).rejects.toThrow(/`TemplateProcessing` has unsupported settings: single: .*exactly once/);
    }
  });
});
