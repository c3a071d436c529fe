"""Writes the expected values of `rope.test.ts`: what transformers makes of rotary settings in `config.json`.

    python test/oracle/rope.py

Needs torch and transformers; the test does not. Writes `rope.json`: for each case the keys of `config.json`, and the frequencies and
the factor on `cos` and `sin` with which the model is built.
"""

import json
import pathlib

import torch
from transformers import LlamaConfig, Qwen2Config, SmolLM3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

torch.set_num_threads(1)
SHARED = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
CONFIGS = {"LlamaForCausalLM": LlamaConfig, "Qwen2ForCausalLM": Qwen2Config, "SmolLM3ForCausalLM": SmolLM3Config}

# architecture, keys of config.json
CASES = [
    ("LlamaForCausalLM", {}),
    ("SmolLM3ForCausalLM", {}),
    ("LlamaForCausalLM", {"rope_theta": 500.0}),
    ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    ("Qwen2ForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_theta": 900.0}),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}}),
    # Both keys.
    ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0},
                          "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}, "rope_scaling": {}}),
    ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}, "rope_scaling": None}),
    # The original context, inside, beside, at both places and at none.
    ("LlamaForCausalLM", {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}}),
    ("LlamaForCausalLM", {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}, "original_max_position_embeddings": 128}),
    ("LlamaForCausalLM", {"rope_scaling": LLAMA3, "original_max_position_embeddings": 128}),
    ("LlamaForCausalLM", {"rope_scaling": LLAMA3}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "original_max_position_embeddings": 64}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "original_max_position_embeddings": 64}, "original_max_position_embeddings": 16}),
    ("LlamaForCausalLM", {"rope_scaling": YARN}),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "original_max_position_embeddings": 16}),
    # Settings of yarn.
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "truncate": False, "beta_fast": 5.0}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "truncate": True, "beta_fast": 5.0}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "truncate": None, "beta_fast": 5.0}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "beta_fast": 0, "beta_slow": None}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "mscale": 0.9, "mscale_all_dim": 0.6}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "mscale": 0.9}}),
    ("LlamaForCausalLM", {"rope_scaling": {**YARN, "attention_factor": 1.5, "mscale": 0.9, "mscale_all_dim": 0.6}}),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 64}}),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}),
    # The whole of a head is rotated.
    ("LlamaForCausalLM", {"rope_parameters": {**YARN, "rope_theta": 500.0, "partial_rotary_factor": 1.0}}),
    ("LlamaForCausalLM", {"rope_scaling": YARN, "partial_rotary_factor": 1.0}),
]


def expected(architecture, keys):
    config = CONFIGS[architecture].from_dict({**SHARED, **json.loads(json.dumps(keys))})
    rotary = LlamaRotaryEmbedding(config)
    return {"frequencies": rotary.inv_freq.double().tolist(), "factor": float(rotary.attention_scaling)}


cases = [{"architecture": architecture, "keys": keys, **expected(architecture, keys)} for architecture, keys in CASES]
path = pathlib.Path(__file__).parent / "rope.json"
path.write_text(json.dumps({"shared": SHARED, "cases": cases}, indent=1) + "\n")
