/** GGUF files, read back and compared with their model directory. `llama-cpp.test.ts` runs them in llama.cpp. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openBaseWeights } from "../../src/engine/onnx/model/weight-source.ts";
import { exportGguf } from "../../src/export/gguf/model.ts";
import { interleaveHeads } from "../../src/export/gguf/architecture.ts";
import { openMergedWeights } from "../../src/export/merged-weights.ts";
import { readGguf } from "./read-gguf.ts";
import { family, ggufOf, modelWithTokenizer, ORACLE, scratch } from "./support.ts";

const floats = (data: Uint8Array, length: number): Float32Array => new Float32Array(data.buffer, 0, length);

describe("tensors", () => {
  test.each([
    ["llama3", true],
    ["qwen3", false],
  ])("of %s have the names of llama.cpp and the values of the directory", async (name, isInterleaved) => {
    const { path } = await ggufOf(family(name, "model"), { preTokenizer: null });
    const { tensors } = readGguf(path);
    const source = await openBaseWeights(family(name, "model"));
    const expectSame = async (gguf: string, file: string, heads = 0) => {
      const { shape, type, data } = tensors.get(gguf)!;
      const expected = await source.read(file);
      expect({ shape, type }, gguf).toEqual({ shape: source.shapeOf(file), type: 0 });
      const reordered = heads > 0 && isInterleaved ? interleaveHeads(expected, heads, shape[1]!) : expected;
      expect(floats(data, expected.length), gguf).toEqual(reordered);
    };
    await expectSame("token_embd.weight", "model.embed_tokens.weight");
    await expectSame("blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 4);
    await expectSame("blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight", 2);
    await expectSame("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight");
    await expectSame("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight");
    await expectSame("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight");
    await source.close();
    // 2 layers with 9 tensors each; Llama has an output and rotary factors, Qwen 3 two norms per layer and a tied output.
    expect(tensors.size).toBe(2 * 9 + 2 + (name === "llama3" ? 2 : 2 * 2));
  });

  test("rows of a head's halves become neighbors", () => {
    // 2 heads of size 4, rows of 1 element.
    expect([...interleaveHeads(Float32Array.of(0, 1, 2, 3, 10, 11, 12, 13), 2, 1)]).toEqual([0, 2, 1, 3, 10, 12, 11, 13]);
  });

  test("rotary scaling of Llama 3 becomes divisors of the frequencies", async () => {
    const { path } = await ggufOf(family("llama3", "model"), { preTokenizer: null });
    // d = 8, theta 5e5, factor 8, low 1, high 4, original context 16. Wavelengths 6.28, 167, …: kept 0.52, then below the low frequency.
    const turns = 16 / (2 * Math.PI);
    const kept = (turns - 1) / 3;
    expect([...floats(readGguf(path).tensors.get("rope_freqs.weight")!.data, 4)]).toEqual([
      Math.fround(1 / (kept + (1 - kept) / 8)),
      8,
      8,
      8,
    ]);
  });

  test.each([
    ["float16", 1, 2],
    ["bfloat16", 30, 2],
    ["q8_0", 8, 34 / 32],
  ] as const)("matrices are %s, vectors float32", async (dtype, type, bytes) => {
    const { tensors, metadata } = readGguf((await ggufOf(family("llama3", "model"), { preTokenizer: null, dtype })).path);
    expect(tensors.get("blk.0.attn_q.weight")).toMatchObject({ type, shape: [32, 32], data: { length: 32 * 32 * bytes } });
    expect(tensors.get("blk.0.attn_norm.weight")!.type).toBe(0);
    // Rows of 40 elements are no whole blocks of 32.
    expect(tensors.get("blk.0.ffn_down.weight")!.type).toBe(dtype === "q8_0" ? 1 : type);
    expect(metadata["general.file_type"]).toBe({ float16: 1, bfloat16: 32, q8_0: 7 }[dtype]);
  });

  test("an adapter of another model is rejected", async () => {
    await expect(openMergedWeights(family("llama3", "model"), family("qwen3", "adapter"))).rejects.toMatchObject({ code: "E_DATA" });
  });

  test.each([
    ["qwen2-yarn", "truncate: false"],
    ["qwen3-biased", "attention_bias"],
  ])("%s is rejected, because llama.cpp has no such model", async (name, reason) => {
    await expect(ggufOf(family(name, "model"), { preTokenizer: null })).rejects.toMatchObject({
      code: "E_UNSUPPORTED",
      message: expect.stringContaining(reason),
    });
  });
});

describe("tokenizers", () => {
  test.each([
    ["llama3", "llama-bpe", { bos: true, warnings: 0 }],
    ["qwen", "qwen2", { bos: false, warnings: 1 }],
    ["smollm", "smollm", { bos: false, warnings: 1 }],
  ] as const)("of %s get the pre-tokenizer %s", async (name, pre, { bos, warnings: count }) => {
    const directory = join(ORACLE, "tokenization", name);
    const { path, warnings } = await ggufOf(await modelWithTokenizer(directory));
    const { metadata } = readGguf(path);
    expect(metadata).toMatchObject({ "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": bos });
    expect(warnings).toHaveLength(count);
    const [tokens, types] = [metadata["tokenizer.ggml.tokens"] as string[], metadata["tokenizer.ggml.token_type"] as number[]];
    expect([tokens.length, types.length]).toEqual([640, 640]);
    const end = metadata["tokenizer.ggml.eos_token_id"] as number;
    expect({ token: tokens[end], type: types[end] }).toEqual({
      token: { llama3: "<|eot_id|>", qwen: "<|im_end|>", smollm: "<|im_end|>" }[name],
      type: 3,
    });
    expect([tokens[639], types[639]]).toEqual(["[PAD639]", 5]);
    expect(metadata["tokenizer.chat_template"]).toContain("messages");
  });

  test("in the style of SentencePiece get scores in the order of the merges", async () => {
    const { path } = await ggufOf(
      await modelWithTokenizer(join(ORACLE, "byte-fallback"), { "tokenizer_config.json": { eos_token: "</s>", bos_token: "<s>" } }),
    );
    const { metadata } = readGguf(path);
    expect(metadata).toMatchObject({
      "tokenizer.ggml.model": "llama",
      "tokenizer.ggml.add_space_prefix": true,
      "tokenizer.ggml.add_bos_token": true,
    });
    const scores = metadata["tokenizer.ggml.scores"] as number[];
    expect(Math.max(...scores)).toBe(0);
    expect(new Set(scores.filter((score) => score < 0)).size).toBe(scores.filter((score) => score < 0).length);
    expect((metadata["tokenizer.ggml.token_type"] as number[]).filter((type) => type === 6)).toHaveLength(256);
  });

  test("with an unknown pattern are rejected by the pattern, unless an option names a pre-tokenizer", async () => {
    const tiny = join(import.meta.dirname, "../../models/whetstone-tiny");
    await expect(ggufOf(tiny)).rejects.toMatchObject({
      code: "E_UNSUPPORTED",
      param: "preTokenizer",
      message: expect.stringContaining("splits text by `[ \\-]?\\p{L}+|"),
    });
    const { path, warnings } = await ggufOf(tiny, { preTokenizer: "tekken" });
    expect(readGguf(path).metadata["tokenizer.ggml.pre"]).toBe("tekken");
    expect(warnings).toEqual([expect.stringContaining("tekken")]);
  });

  test("that normalize text other than to NFC are rejected", async () => {
    const directory = await modelWithTokenizer(join(ORACLE, "tokenization/qwen"));
    const file = JSON.parse(await readFile(join(directory, "tokenizer.json"), "utf8")) as object;
    await writeFile(join(directory, "tokenizer.json"), JSON.stringify({ ...file, normalizer: { type: "Lowercase" } }));
    await expect(ggufOf(directory)).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining("Lowercase") });
  });
});

test("an abort between two tensors ends the export", async () => {
  const weights = await openMergedWeights(family("llama3", "model"), null);
  const path = join(await scratch(), "aborted.gguf");
  const source = { base: family("llama3", "model"), weights, name: "a", dtype: "float32", preTokenizer: null } as const;
  await expect(exportGguf(path, { ...source, signal: AbortSignal.abort(new Error("stopped")) })).rejects.toThrow("stopped");
  await weights.close();
});
