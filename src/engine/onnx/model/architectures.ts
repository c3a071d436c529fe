/** Supported architectures as data: properties that `config.json` does not contain, defaults for missing keys, and names of tensors. */
import type { WindowRule } from "./layer-windows.ts";
import type { RopeRule } from "./rope-settings.ts";
import type { ScaleRule } from "./scales.ts";

/** Names of the modules of a layer in weight files; a fused module holds several projections in one matrix. */
export interface ModuleNames {
  /** Fused projection of queries, keys and values; null if each has its own. */
  readonly fusedQkv: string | null;
  /** Feed-forward module. */
  readonly mlp: string;
  /** Fused gate and up projections; null if each has its own. */
  readonly fusedGateUp: string | null;
  readonly down: string;
}

/** Placement of a layer's norms: before attention and feed-forward, on their outputs, or both. */
export type NormPlacement = "before" | "after" | "both";

/** Normalization of queries and keys: none, each head, or all heads of a token together. */
export type QueryKeyNorm = "none" | "head" | "all";

/** Activation of the gate. */
export type Activation = "silu" | "gelu-tanh";

/** Properties of a model architecture that its `config.json` does not contain, or defaults for missing keys. */
export interface Architecture extends RopeRule {
  /** Default of `head_dim`; absent = hidden size / heads. */
  readonly defaultHeadSize?: number | undefined;
  /** Default of `num_key_value_heads`; absent = as many as query heads. */
  readonly defaultKvHeads?: number | undefined;
  /** Default of `rms_norm_eps`. */
  readonly defaultNormEpsilon: number;
  /** Default of `tie_word_embeddings`. */
  readonly isTiedByDefault: boolean;
  /** Whether queries, keys and values always have a bias, and the attention output never has one. */
  readonly alwaysHasQkvBias: boolean;
  /** Whether `attention_bias` is read. */
  readonly mayHaveAttentionBias: boolean;
  /** Whether `mlp_bias` is read. */
  readonly mayHaveMlpBias: boolean;
  readonly queryKeyNorm: QueryKeyNorm;
  /**
   * Layers without rotary embedding: none; the ones that `no_rope_layers` or `no_rope_layer_interval` names; or all, unless
   * `position_embedding_type` is "rope".
   */
  readonly unrotated: "none" | "no-rope-layers" | "position-type";
  /** Sliding window; null if no layer may have one. */
  readonly window: WindowRule | null;
  readonly norms: NormPlacement;
  /** Whether a norm multiplies by `1 + gain` instead of `gain`. */
  readonly hasUnitOffset: boolean;
  /** Key of the activation in `config.json`, its only supported value there, and the activation that it names. */
  readonly activation: { readonly key: string; readonly name: string; readonly kind: Activation };
  readonly modules: ModuleNames;
  /** Key of the inner size of the feed-forward layers. */
  readonly innerSizeKey: string;
  readonly scales: ScaleRule;
  /** Whether layers may be Mamba layers or have experts; only dense models with attention are supported. */
  readonly isHybrid: boolean;
}

/** Module names of architectures with one matrix per projection. */
const SEPARATE: ModuleNames = { fusedQkv: null, mlp: "mlp", fusedGateUp: null, down: "down_proj" };

/** Properties of Llama, which all other architectures extend. */
const LLAMA: Architecture = {
  defaultTheta: 10_000,
  localTheta: null,
  isPhi: false,
  growsQueries: false,
  defaultNormEpsilon: 1e-6,
  isTiedByDefault: false,
  alwaysHasQkvBias: false,
  mayHaveAttentionBias: true,
  mayHaveMlpBias: true,
  queryKeyNorm: "none",
  unrotated: "none",
  window: null,
  norms: "before",
  hasUnitOffset: false,
  activation: { key: "hidden_act", name: "silu", kind: "silu" },
  modules: SEPARATE,
  innerSizeKey: "intermediate_size",
  scales: "usual",
  isHybrid: false,
};

/** Window of Qwen models: off unless `use_sliding_window` is set, and then in the upper layers. */
const QWEN_WINDOW: WindowRule = {
  defaultSize: 4096,
  needsUseSlidingWindow: true,
  readsLayerTypes: true,
  layers: "from-max-window-layers",
};

/** Window of Mistral models: in all layers. */
const MISTRAL_WINDOW: WindowRule = { defaultSize: 4096, needsUseSlidingWindow: false, readsLayerTypes: false, layers: "all" };

/** Properties of Mistral models, which have no biases. */
const MISTRAL: Architecture = {
  ...LLAMA,
  defaultKvHeads: 8,
  mayHaveAttentionBias: false,
  mayHaveMlpBias: false,
  window: MISTRAL_WINDOW,
};

/** Properties of OLMo 2, which normalizes outputs instead of inputs. */
const OLMO2: Architecture = { ...LLAMA, defaultNormEpsilon: 1e-5, mayHaveMlpBias: false, queryKeyNorm: "all", norms: "after" };

/** Window of architectures in which some layers have none. */
const LAYERED_WINDOW = { defaultSize: 4096, needsUseSlidingWindow: false, readsLayerTypes: true } as const;

/** Properties of Granite models, which have four multipliers. */
const GRANITE: Architecture = { ...LLAMA, scales: "granite" };

/** Supported architectures by their name in `config.json`. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  // Llama 2 and 3, SmolLM and SmolLM 2, and other models with the same architecture.
  LlamaForCausalLM: LLAMA,
  // Qwen 2 and 2.5.
  Qwen2ForCausalLM: { ...LLAMA, alwaysHasQkvBias: true, mayHaveAttentionBias: false, mayHaveMlpBias: false, window: QWEN_WINDOW },
  Qwen3ForCausalLM: { ...LLAMA, defaultHeadSize: 128, mayHaveMlpBias: false, queryKeyNorm: "head", window: QWEN_WINDOW },
  SmolLM3ForCausalLM: {
    ...LLAMA,
    defaultTheta: 2_000_000,
    isTiedByDefault: true,
    unrotated: "no-rope-layers",
    window: { defaultSize: null, needsUseSlidingWindow: true, readsLayerTypes: true, layers: "unrotated" },
  },
  // Mistral 7B and its successors without vision.
  MistralForCausalLM: MISTRAL,
  // Ministral 8B.
  MinistralForCausalLM: { ...MISTRAL, window: { ...MISTRAL_WINDOW, readsLayerTypes: true } },
  // Ministral 3 without vision.
  Ministral3ForCausalLM: {
    ...MISTRAL,
    defaultHeadSize: 128,
    defaultNormEpsilon: 1e-5,
    growsQueries: true,
    window: { ...MISTRAL_WINDOW, defaultSize: null },
  },
  Olmo2ForCausalLM: OLMO2,
  Olmo3ForCausalLM: {
    ...OLMO2,
    defaultTheta: 500_000,
    localTheta: { key: "rope_theta", defaultTheta: 500_000 },
    window: { ...LAYERED_WINDOW, layers: { exceptEvery: 4 } },
  },
  // Phi 3 and Phi-4-mini.
  Phi3ForCausalLM: {
    ...LLAMA,
    isPhi: true,
    defaultNormEpsilon: 1e-5,
    mayHaveAttentionBias: false,
    mayHaveMlpBias: false,
    window: { ...MISTRAL_WINDOW, defaultSize: null },
    modules: { fusedQkv: "qkv_proj", mlp: "mlp", fusedGateUp: "gate_up_proj", down: "down_proj" },
  },
  // Granite 3.
  GraniteForCausalLM: GRANITE,
  // Granite 4, its dense models.
  GraniteMoeHybridForCausalLM: {
    ...GRANITE,
    mayHaveMlpBias: false,
    unrotated: "position-type",
    modules: { fusedQkv: null, mlp: "shared_mlp", fusedGateUp: "input_linear", down: "output_linear" },
    innerSizeKey: "shared_intermediate_size",
    isHybrid: true,
  },
  // Gemma 3, text only.
  Gemma3ForCausalLM: {
    ...LLAMA,
    defaultTheta: 1_000_000,
    localTheta: { key: "rope_local_base_freq", defaultTheta: 10_000 },
    defaultHeadSize: 256,
    defaultKvHeads: 4,
    isTiedByDefault: true,
    mayHaveMlpBias: false,
    queryKeyNorm: "head",
    window: { ...LAYERED_WINDOW, layers: { exceptEvery: 6, key: "sliding_window_pattern" } },
    norms: "both",
    hasUnitOffset: true,
    activation: { key: "hidden_activation", name: "gelu_pytorch_tanh", kind: "gelu-tanh" },
    scales: "gemma",
  },
};
