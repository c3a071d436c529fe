/** Models and adapters in GGUF against llama.cpp's own converter; `test/oracle/gguf-files.py` wrote the values. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { parseModelConfig } from "../../src/engine/onnx/model/config.ts";
import type { ExportDtype } from "../../src/export/element-encoders.ts";
import { ggufModel } from "../../src/export/gguf/architecture.ts";
import { type GgufFile, readGguf } from "./read-gguf.ts";
import { family, ggufAdapterOf, ggufOf, gunzipped } from "./support.ts";

interface Tensor {
  readonly shape: number[];
  readonly type: number;
  readonly sha256?: string;
  readonly values?: number[];
}
interface Described {
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<Record<string, Tensor>>;
}
interface Configured extends Described {
  readonly config: Readonly<Record<string, unknown>>;
  readonly names: readonly string[];
}
type Files = Readonly<Record<string, Readonly<Record<ExportDtype, Described>>>>;

const { models, adapters, configs } = await gunzipped<{ models: Files; adapters: Files; configs: Record<string, Configured> }>(
  "gguf-files.json.gz",
);
const cases = (files: Files) =>
  Object.entries(files).flatMap(([name, byType]) => Object.keys(byType).map((dtype) => [name, dtype as ExportDtype] as const));

function expectFile({ metadata, tensors }: GgufFile, expected: Described): void {
  expect(metadata).toMatchObject(expected.metadata);
  expect([...tensors.keys()].toSorted()).toEqual(Object.keys(expected.tensors).toSorted());
  for (const [name, { shape, type, data }] of tensors) {
    const { sha256, values, ...description } = expected.tensors[name]!;
    expect({ shape, type }, name).toEqual(description);
    if (sha256 !== undefined) expect(createHash("sha256").update(data).digest("hex"), name).toBe(sha256);
    // Computed in float32 by the converter, in float64 here.
    else [...new Float32Array(data.buffer)].forEach((value, i) => expect(value / values![i]!, name).toBeCloseTo(1, 6));
  }
}

describe("a model", () => {
  test.each(cases(models))("of %s in %s has the converter's metadata, tensors and bytes", async (name, dtype) => {
    expectFile(readGguf((await ggufOf(family(name, "model"), { preTokenizer: null, dtype })).path), models[name]![dtype]);
  });
});

/** Returns the part of a configuration that all architectures share, as a Llama configuration. */
function sharedConfig({ rope_parameters: rope, ...config }: Configured["config"]): ReturnType<typeof parseModelConfig> {
  const { full_attention: full = rope as object | undefined } = (rope ?? {}) as Record<string, object | undefined>;
  const { rope_type: type } = (full ?? {}) as { rope_type?: string };
  const parameters = { ...full, partial_rotary_factor: 1, ...(type === "longrope" ? { rope_type: "default" } : {}) };
  const own = {
    sliding_window: null,
    final_logit_softcapping: null,
    layer_types: null,
    partial_rotary_factor: 1,
    hidden_act: "silu",
    rope_parameters: parameters,
  };
  return parseModelConfig({ ...config, ...own, architectures: ["LlamaForCausalLM"] }, "config.json");
}

describe("a configuration", () => {
  test.each(Object.entries(configs))(
    "of %s has the converter's metadata and tensor names",
    (_name, { config, names, metadata, tensors }) => {
      const model = ggufModel(config, sharedConfig(config));
      const found = Object.fromEntries(
        model.metadata.map(([key, { value }]) => [key, typeof value === "number" ? Math.fround(value) : value]),
      );
      for (const [key, value] of Object.entries(metadata)) {
        // llama.cpp computes the attention factor of "yarn" from the multiplier, or reads it from the file.
        if (/^(?:general\.(?!arch)|tokenizer\.)|yarn_log_multiplier$/u.test(key)) continue;
        expect(found[key], key).toEqual(typeof value === "number" ? Math.fround(value) : value);
      }
      expect([...names.map((name) => model.tensorOf(name).name), ...model.ropeFactors.keys()].toSorted()).toEqual(
        Object.keys(tensors).toSorted(),
      );
      for (const [name, factors] of model.ropeFactors) expect([...factors], name).toEqual(tensors[name]!.values);
      const gains = names.filter((name) => name.endsWith("norm.weight")).map((name) => model.tensorOf(name).offset);
      expect(new Set(gains)).toEqual(new Set([metadata["general.architecture"] === "gemma3" ? 1 : 0]));
    },
  );

  test.each([
    ["mistral", { sliding_window: 16 }, "sliding window"],
    ["gemma3", { query_pre_attn_scalar: 32 }, "query_pre_attn_scalar"],
    ["olmo2", { tie_word_embeddings: true }, "tie_word_embeddings"],
    ["granite", { head_dim: 16 }, "head_dim"],
    ["phi3", { sliding_window: 16 }, "sliding window"],
    ["phi3", { architectures: ["Mamba2ForCausalLM"] }, "got Mamba2ForCausalLM"],
  ])("of %s with %j, which llama.cpp does not have, is rejected", (name, change, reason) => {
    const config = { ...configs[name]!.config, ...change };
    expect(() => ggufModel(config, sharedConfig(config))).toThrow(
      expect.objectContaining({ code: "E_UNSUPPORTED", message: expect.stringContaining(reason) }),
    );
  });
});

describe("an adapter", () => {
  test.each(cases(adapters))("of %s in %s has the converter's metadata, tensors and bytes", async (name, dtype) => {
    expectFile(readGguf(await ggufAdapterOf(name, { dtype })), adapters[name]![dtype]);
  });

  test("of another model is rejected", async () => {
    await expect(ggufAdapterOf("llama3", { base: "qwen3" })).rejects.toMatchObject({ code: "E_DATA" });
  });

  test("of a model that llama.cpp does not have is rejected", async () => {
    await expect(ggufAdapterOf("qwen3-biased")).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining("bias") });
  });
});
