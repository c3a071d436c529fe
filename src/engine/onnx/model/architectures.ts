/** Properties of a model architecture that its `config.json` does not contain, or defaults for missing keys. */
export interface Architecture {
  /** Default of `rope_theta`. */
  readonly defaultTheta: number;
  /** Default of `head_dim`; absent = hidden size / heads. */
  readonly defaultHeadSize?: number | undefined;
  /** Default of `tie_word_embeddings`. */
  readonly isTiedByDefault: boolean;
  /** Whether queries, keys and values always have a bias, and the attention output never has one; `attention_bias` is then not read. */
  readonly alwaysHasQkvBias: boolean;
  /** Whether `mlp_bias` is read. */
  readonly mayHaveMlpBias: boolean;
  /** Whether query and key heads are normalized. */
  readonly hasQueryKeyNorm: boolean;
  /** Whether `no_rope_layers` and `no_rope_layer_interval` are read. */
  readonly mayLeaveLayersUnrotated: boolean;
  /** Whether `sliding_window` applies only with `use_sliding_window: true`. */
  readonly readsUseSlidingWindow: boolean;
  /** Whether the architecture uses a default window if `use_sliding_window` is true and `sliding_window` is missing. */
  readonly hasDefaultWindow: boolean;
}

const LLAMA: Architecture = {
  defaultTheta: 10_000,
  isTiedByDefault: false,
  alwaysHasQkvBias: false,
  mayHaveMlpBias: true,
  hasQueryKeyNorm: false,
  mayLeaveLayersUnrotated: false,
  readsUseSlidingWindow: false,
  hasDefaultWindow: false,
};

/** Supported architectures by their name in `config.json`. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  // Llama 2 and 3, SmolLM and SmolLM 2, and other models with the same architecture.
  LlamaForCausalLM: LLAMA,
  // Qwen 2 and 2.5.
  Qwen2ForCausalLM: { ...LLAMA, alwaysHasQkvBias: true, mayHaveMlpBias: false, readsUseSlidingWindow: true, hasDefaultWindow: true },
  Qwen3ForCausalLM: {
    ...LLAMA,
    defaultHeadSize: 128,
    mayHaveMlpBias: false,
    hasQueryKeyNorm: true,
    readsUseSlidingWindow: true,
    hasDefaultWindow: true,
  },
  SmolLM3ForCausalLM: {
    ...LLAMA,
    defaultTheta: 2_000_000,
    isTiedByDefault: true,
    mayLeaveLayersUnrotated: true,
    readsUseSlidingWindow: true,
  },
};
