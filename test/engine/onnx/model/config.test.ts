/** Configurations of released models of each family, and rejected configurations. */
import { describe, expect, test } from "vitest";
import { DataError, UnsupportedError } from "../../../../src/base/errors.ts";
import { parseModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { countParameters } from "../../../../src/engine/onnx/model/transformer.ts";

const SMALL = {
  vocab_size: 64,
  hidden_size: 32,
  num_hidden_layers: 8,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 48,
  max_position_embeddings: 128,
};
const SMALL_TYPES = Array.from({ length: SMALL.num_hidden_layers }, (_, layer) => layer);
const ALTERNATING = SMALL_TYPES.map((layer) => (layer % 2 === 0 ? "sliding_attention" : "full_attention"));
const DENSE = { num_local_experts: 0, shared_intermediate_size: 48 };
const of = (architecture: string, changes: object = {}) =>
  parseModelConfig({ architectures: [architecture], ...SMALL, ...changes }, "config.json");

describe("released models", () => {
  // Parameter counts of the published models.
  test.each([
    [
      "Qwen2.5-0.5B",
      {
        architectures: ["Qwen2ForCausalLM"],
        hidden_act: "silu",
        hidden_size: 896,
        intermediate_size: 4864,
        max_position_embeddings: 32768,
        max_window_layers: 21,
        num_attention_heads: 14,
        num_hidden_layers: 24,
        num_key_value_heads: 2,
        rms_norm_eps: 1e-6,
        rope_theta: 1000000,
        sliding_window: 32768,
        tie_word_embeddings: true,
        use_sliding_window: false,
        vocab_size: 151936,
      },
      { attentionBias: "qkv", headSize: 64, isTied: true, queryKeyNorm: "none", window: null, rope: { kind: "none" } },
      494_032_768,
    ],
    [
      "Qwen3-0.6B",
      {
        architectures: ["Qwen3ForCausalLM"],
        attention_bias: false,
        head_dim: 128,
        hidden_act: "silu",
        hidden_size: 1024,
        intermediate_size: 3072,
        max_position_embeddings: 40960,
        num_attention_heads: 16,
        num_hidden_layers: 28,
        num_key_value_heads: 8,
        rms_norm_eps: 1e-6,
        rope_scaling: null,
        rope_theta: 1000000,
        sliding_window: null,
        tie_word_embeddings: true,
        use_sliding_window: false,
        vocab_size: 151936,
      },
      { attentionBias: "none", headSize: 128, queryKeyNorm: "head" },
      596_049_920,
    ],
    [
      "Llama-3.2-1B",
      {
        architectures: ["LlamaForCausalLM"],
        attention_bias: false,
        head_dim: 64,
        hidden_act: "silu",
        hidden_size: 2048,
        intermediate_size: 8192,
        max_position_embeddings: 131072,
        mlp_bias: false,
        num_attention_heads: 32,
        num_hidden_layers: 16,
        num_key_value_heads: 8,
        pretraining_tp: 1,
        rms_norm_eps: 1e-5,
        rope_scaling: {
          factor: 32.0,
          high_freq_factor: 4.0,
          low_freq_factor: 1.0,
          original_max_position_embeddings: 8192,
          rope_type: "llama3",
        },
        rope_theta: 500000.0,
        tie_word_embeddings: true,
        vocab_size: 128256,
      },
      { rope: { kind: "llama3", factor: 32, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 8192 } },
      1_235_814_400,
    ],
    [
      "SmolLM2-135M",
      {
        architectures: ["LlamaForCausalLM"],
        attention_bias: false,
        hidden_act: "silu",
        hidden_size: 576,
        intermediate_size: 1536,
        is_llama_config: true,
        max_position_embeddings: 8192,
        mlp_bias: false,
        num_attention_heads: 9,
        num_hidden_layers: 30,
        num_key_value_heads: 3,
        rms_norm_eps: 1e-5,
        rope_interleaved: false,
        rope_scaling: null,
        rope_theta: 100000,
        tie_word_embeddings: true,
        vocab_size: 49152,
      },
      { headSize: 64, kvHeads: 3, ropeTheta: 100000 },
      134_515_008,
    ],
    [
      "Mistral-7B-v0.1",
      {
        architectures: ["MistralForCausalLM"],
        hidden_act: "silu",
        hidden_size: 4096,
        intermediate_size: 14336,
        max_position_embeddings: 32768,
        num_attention_heads: 32,
        num_hidden_layers: 32,
        num_key_value_heads: 8,
        rms_norm_eps: 1e-5,
        rope_theta: 10000.0,
        sliding_window: 4096,
        tie_word_embeddings: false,
        vocab_size: 32000,
      },
      { attentionBias: "none", headSize: 128, window: { size: 4096, layers: Array.from({ length: 32 }, (_, layer) => layer) } },
      7_241_732_096,
    ],
    [
      "OLMo-2-1124-7B",
      {
        architectures: ["Olmo2ForCausalLM"],
        attention_bias: false,
        hidden_act: "silu",
        hidden_size: 4096,
        intermediate_size: 11008,
        max_position_embeddings: 4096,
        num_attention_heads: 32,
        num_hidden_layers: 32,
        num_key_value_heads: 32,
        rms_norm_eps: 1e-6,
        rope_scaling: null,
        rope_theta: 500000,
        tie_word_embeddings: false,
        vocab_size: 100352,
      },
      { queryKeyNorm: "all", norms: "after" },
      7_298_617_344,
    ],
    [
      "Gemma-3-1b-it",
      {
        architectures: ["Gemma3ForCausalLM"],
        attention_bias: false,
        attn_logit_softcapping: null,
        final_logit_softcapping: null,
        head_dim: 256,
        hidden_activation: "gelu_pytorch_tanh",
        hidden_size: 1152,
        intermediate_size: 6912,
        max_position_embeddings: 32768,
        model_type: "gemma3_text",
        num_attention_heads: 4,
        num_hidden_layers: 26,
        num_key_value_heads: 1,
        query_pre_attn_scalar: 256,
        rms_norm_eps: 1e-6,
        rope_local_base_freq: 10000,
        rope_scaling: null,
        rope_theta: 1000000,
        sliding_window: 512,
        sliding_window_pattern: 6,
        vocab_size: 262144,
      },
      {
        isTied: true,
        ropeTheta: 1e6,
        localRope: { ropeTheta: 1e4, rope: { kind: "none" } },
        window: { size: 512, layers: Array.from({ length: 26 }, (_, layer) => layer).filter((layer) => (layer + 1) % 6 !== 0) },
        scales: { embedding: Math.sqrt(1152), attention: 1 / 16, residual: 1, logits: 1 },
      },
      999_885_952,
    ],
    [
      "Phi-4-mini-instruct",
      {
        architectures: ["Phi3ForCausalLM"],
        attention_bias: false,
        hidden_act: "silu",
        hidden_size: 3072,
        intermediate_size: 8192,
        max_position_embeddings: 131072,
        num_attention_heads: 24,
        num_hidden_layers: 32,
        num_key_value_heads: 8,
        original_max_position_embeddings: 4096,
        partial_rotary_factor: 0.75,
        rms_norm_eps: 1e-5,
        rope_scaling: {
          long_factor: Array.from({ length: 48 }, () => 2),
          short_factor: Array.from({ length: 48 }, () => 1),
          type: "longrope",
        },
        rope_theta: 10000.0,
        sliding_window: 262144,
        tie_word_embeddings: true,
        vocab_size: 200064,
      },
      { headSize: 128, rotarySize: 96, contextLength: 131072, window: null },
      3_836_021_760,
    ],
  ])("%s", (_, raw, expected, parameters) => {
    const config = parseModelConfig(raw, "config.json");
    expect(config).toMatchObject(expected);
    expect(countParameters(config)).toBe(parameters);
  });
});

describe("defaults of a configuration file", () => {
  test("embedding and head are shared by the default of the family", () => {
    expect(of("LlamaForCausalLM").isTied).toBe(false);
    expect(of("SmolLM3ForCausalLM").isTied).toBe(true);
    expect(of("SmolLM3ForCausalLM", { tie_word_embeddings: false }).isTied).toBe(false);
  });

  test("SmolLM 3 leaves every fourth layer without rotary embedding, or the layers that the file names", () => {
    expect(of("SmolLM3ForCausalLM").unrotatedLayers).toEqual([3, 7]);
    expect(of("SmolLM3ForCausalLM", { no_rope_layer_interval: 3 }).unrotatedLayers).toEqual([2, 5]);
    expect(of("SmolLM3ForCausalLM", { no_rope_layers: [0, 1, 1, 1, 1, 1, 1, 0] }).unrotatedLayers).toEqual([0, 7]);
    expect(() => of("SmolLM3ForCausalLM", { no_rope_layers: [0, 1] })).toThrow(/"no_rope_layers" to be 8 numbers/);
    expect(of("LlamaForCausalLM", { no_rope_layers: [0, 1] }).unrotatedLayers).toEqual([]);
  });

  test("the head size is 128 for Qwen 3 and hidden size / heads for others", () => {
    expect(of("Qwen3ForCausalLM").headSize).toBe(128);
    expect(of("Qwen2ForCausalLM").headSize).toBe(8);
  });
});

describe("sliding windows", () => {
  test.each([
    ["MistralForCausalLM", { sliding_window: 16 }, [0, 1, 2, 3, 4, 5, 6, 7]],
    ["MinistralForCausalLM", { sliding_window: 16, layer_types: ALTERNATING }, [0, 2, 4, 6]],
    ["Qwen2ForCausalLM", { sliding_window: 16, use_sliding_window: true, max_window_layers: 5 }, [5, 6, 7]],
    ["Qwen3ForCausalLM", { sliding_window: 16, use_sliding_window: true, layer_types: ALTERNATING }, [0, 2, 4, 6]],
    ["SmolLM3ForCausalLM", { sliding_window: 16, use_sliding_window: true }, [3, 7]],
    ["SmolLM3ForCausalLM", { sliding_window: 16, use_sliding_window: true, layer_types: ALTERNATING }, [0, 2, 4, 6]],
  ] as const)("%s with %j", (architecture, changes, layers) => {
    expect(of(architecture, changes).window).toEqual({ size: 16, layers });
  });

  test.each([
    ["MistralForCausalLM", { sliding_window: null }],
    ["MistralForCausalLM", { sliding_window: 128 }],
    // The default of 4,096 tokens is longer than the context.
    ["MistralForCausalLM", {}],
    ["Qwen2ForCausalLM", { sliding_window: 16, use_sliding_window: false }],
    ["Qwen3ForCausalLM", { sliding_window: 16 }],
    ["SmolLM3ForCausalLM", { use_sliding_window: true }],
  ])("%s with %j has none", (architecture, changes) => {
    expect(of(architecture, changes).window).toBeNull();
  });

  test.each([
    ["MistralForCausalLM", { sliding_window: 0 }, /"sliding_window" to be a whole number from 1 or null, got 0/],
    ["MinistralForCausalLM", { layer_types: ["full_attention"] }, /"layer_types" to be 8 types of layers/],
    ["Qwen2ForCausalLM", { use_sliding_window: true, max_window_layers: 1.5 }, /"max_window_layers" to be a whole number from 0, got 1.5/],
  ])("%s with %j is rejected", (architecture, changes, message) => {
    expect(() => of(architecture, changes)).toThrow(DataError);
    expect(() => of(architecture, changes)).toThrow(message);
  });
});

test("Ministral 3 needs the growth of its queries", () => {
  const rope = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 32 };
  const grown = of("Ministral3ForCausalLM", { rope_parameters: { ...rope, llama_4_scaling_beta: 0.1 } });
  expect(grown.queryGrowth).toEqual({ beta: 0.1, originalContextLength: 32 });
  expect(of("Ministral3ForCausalLM", { rope_parameters: { ...rope, llama_4_scaling_beta: 0 } }).queryGrowth).toBeNull();
  expect(() => of("Ministral3ForCausalLM", { rope_parameters: rope })).toThrow(/"rope_parameters.llama_4_scaling_beta" to be a number > 0/);
});

describe("rotary positions", () => {
  test("are read from rope_parameters of newer files", () => {
    const scaling = { rope_type: "linear", factor: 4 };
    const older = of("LlamaForCausalLM", { rope_theta: 500, rope_scaling: scaling });
    const newer = of("LlamaForCausalLM", { rope_parameters: { ...scaling, rope_theta: 500 } });
    expect(newer).toEqual(older);
    expect(of("LlamaForCausalLM", { rope_theta: 500, rope_scaling: { type: "linear", factor: 4 } })).toEqual(older);
  });

  test("linear scaling by 4 gives position 4n the angles of position n", () => {
    const plain = rotaryTables(of("LlamaForCausalLM"));
    const scaled = rotaryTables(of("LlamaForCausalLM", { rope_scaling: { rope_type: "linear", factor: 4 } }));
    for (const table of ["sin", "cos"] as const) {
      for (let n = 0; 4 * n < SMALL.max_position_embeddings; n++) {
        for (let pair = 0; pair < 4; pair++) expect(scaled[table][4 * n * 4 + pair]).toBeCloseTo(plain[table][n * 4 + pair]!, 6);
      }
    }
  });

  test.each([
    ["longrope", UnsupportedError, /"longrope" is not supported; .*"yarn"/],
    ["su", UnsupportedError, /"su" is not supported/],
    ["linear", DataError, /"rope_scaling.factor" to be a number > 0, got undefined/],
    ["llama3", DataError, /"rope_scaling.factor"/],
    ["yarn", DataError, /"rope_scaling.factor"/],
  ])("type %s without its parameters is rejected", (type, error, message) => {
    expect(() => of("LlamaForCausalLM", { rope_scaling: { rope_type: type } })).toThrow(error);
    expect(() => of("LlamaForCausalLM", { rope_scaling: { rope_type: type } })).toThrow(message);
  });
});

test.each([
  ["MixtralForCausalLM", {}, /LlamaForCausalLM, Qwen2ForCausalLM.*got \["MixtralForCausalLM"\]/],
  ["Gemma3ForConditionalGeneration", {}, /got \["Gemma3ForConditionalGeneration"\]/],
  ["toString", {}, /got \["toString"\]/],
  ["LlamaForCausalLM", { hidden_act: "gelu" }, /"hidden_act": "gelu" is not supported; only "silu" is/],
  ["LlamaForCausalLM", { sliding_window: 4096 }, /"sliding_window": 4096/],
  ["Qwen3ForCausalLM", { layer_types: ALTERNATING }, /"layer_types" names layers 0, 2, 4, 6 with a window, expected none/],
  ["LlamaForCausalLM", { layer_types: ALTERNATING }, /"layer_types" names layers 0, 2, 4, 6/],
  ["MistralForCausalLM", { sliding_window: 8, layer_types: ALTERNATING }, /expected 0, 1, 2, 3, 4, 5, 6, 7 by the other settings/],
  ["Qwen3ForCausalLM", { layer_types: SMALL_TYPES.map(() => "chunked_attention") }, /"layer_types": "chunked_attention" is not supported/],
  ["MistralForCausalLM", { attention_bias: true }, /"attention_bias": true/],
  ["Qwen2ForCausalLM", { mlp_bias: true }, /"mlp_bias": true/],
  ["Qwen2ForCausalLM", { attention_bias: true }, /"attention_bias": true/],
  ["Gemma3ForCausalLM", { final_logit_softcapping: 30 }, /"final_logit_softcapping": 30/],
  ["Gemma3ForCausalLM", { attn_logit_softcapping: 50 }, /"attn_logit_softcapping": 50/],
  ["Gemma3ForCausalLM", { use_bidirectional_attention: true }, /"use_bidirectional_attention": true/],
  ["GraniteMoeHybridForCausalLM", {}, /"num_local_experts" to be 0, got undefined: experts are not supported/],
  ["GraniteMoeHybridForCausalLM", { num_local_experts: 0 }, /"layer_types".*Mamba layers, the default, are not supported/],
  ["GraniteMoeHybridForCausalLM", { ...DENSE, layer_types: SMALL_TYPES.map(() => "mamba") }, /"layer_types": "mamba" is not supported/],
  ["Phi3ForCausalLM", { rope_scaling: { type: "llama3" } }, /type "llama3" is not supported; "default" and "longrope" are/],
  ["LlamaForCausalLM", { partial_rotary_factor: 0.5 }, /"partial_rotary_factor": 0.5/],
  ["LlamaForCausalLM", { quantization_config: { bits: 4 } }, /"quantization_config"/],
  ["Qwen2ForCausalLM", { dual_chunk_attention_config: {} }, /"dual_chunk_attention_config"/],
])("%s with %j is rejected by name", (architecture, changes, message) => {
  expect(() => of(architecture, changes)).toThrow(UnsupportedError);
  expect(() => of(architecture, changes)).toThrow(message);
});
