/** What sets the model families apart, where their `config.json` does not say it itself. */
export interface Architecture {
  /** Used where the file has no `rope_theta`. */
  readonly defaultTheta: number;
  /** Used where the file has no `head_dim`; absent = hidden size / heads. */
  readonly defaultHeadSize?: number | undefined;
  /** Whether the head is the embedding where the file does not say. */
  readonly isTiedByDefault: boolean;
  /** Queries, keys and values have a bias whatever the file says, the output never has. */
  readonly alwaysHasQkvBias: boolean;
  /** Whether `mlp_bias` is read. */
  readonly mayHaveMlpBias: boolean;
  /** Query and key heads are normalised. */
  readonly hasQueryKeyNorm: boolean;
  /** Whether `no_rope_layers` and `no_rope_layer_interval` are read. */
  readonly mayLeaveLayersUnrotated: boolean;
  /** Whether `sliding_window` counts only beside `use_sliding_window: true`. */
  readonly readsUseSlidingWindow: boolean;
  /** Whether there is a window where `use_sliding_window` is true and the file has no `sliding_window`. */
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

/** The architectures that are carried out, by their name in `config.json`. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  // Llama 2 and 3, SmolLM and SmolLM 2, and what else was trained in their layout.
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
