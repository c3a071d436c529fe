"""Writes the expected values of `families.test.ts`: a small random model of each family in Hugging Face transformers.

    python test/oracle/families.py [name ...]

Without names, writes every family; the last digits of the values depend on the processor. Append a new family at the end, because
the seed of a family is its position. Needs torch, transformers and peft; the test does not. Writes `families/<name>/model` (a model
directory as transformers saves it), `families/<name>/adapter` (an adapter as PEFT saves it) and `families/<name>/expected.json.gz`.
"""

import gzip
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from transformers import (Gemma3TextConfig, GraniteConfig, GraniteMoeHybridConfig, LlamaConfig, MinistralConfig, Ministral3Config, MistralConfig,
                          Olmo2Config, Olmo3Config, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config)

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent / "families"
shared = {"vocab_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
          "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
# Sizes of the families added later: small files and short tests. The window is shorter than the first row, and shorter than the second with
# its continuation.
small = {**shared, "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 48, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8}
no_head_size = {key: value for key, value in small.items() if key != "head_dim"}
two_heads = {**no_head_size, "num_attention_heads": 2, "num_key_value_heads": 1}
WINDOW = 16
RANK, ALPHA = 3, 5
# Names of all linear layers of the transformer in all families; PEFT takes the ones that a model has.
EVERY_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj", "input_linear",
                "output_linear"]

# name: configuration, type of the stored weights, size of a shard
FAMILIES = {
    "llama3": (LlamaConfig(**shared, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8, rope_theta=500000.0,
                           rms_norm_eps=1e-5, tie_word_embeddings=False,
                           rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 16}), torch.bfloat16, "12KB"),
    "llama-biased": (LlamaConfig(**shared, hidden_size=24, num_attention_heads=3, num_key_value_heads=3, head_dim=8, rope_theta=10000.0,
                                 attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                 rope_scaling={"rope_type": "linear", "factor": 2.5}), torch.float32, "1GB"),
    "qwen2": (Qwen2Config(**shared, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, rope_theta=1000000.0,
                          tie_word_embeddings=True, use_sliding_window=False, sliding_window=32, max_window_layers=2,
                          rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}), torch.float16, "1GB"),
    "qwen2-yarn": (Qwen2Config(**shared, hidden_size=32, num_attention_heads=2, num_key_value_heads=1, rope_theta=100.0,
                               tie_word_embeddings=False, use_sliding_window=False,
                               rope_scaling={"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 20, "beta_fast": 4.0,
                                             "beta_slow": 0.5, "mscale": 0.9, "mscale_all_dim": 0.6, "truncate": False}), torch.bfloat16, "1GB"),
    "qwen3": (Qwen3Config(**shared, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_theta=1000000.0,
                          tie_word_embeddings=True, attention_bias=False), torch.bfloat16, "1GB"),
    "qwen3-biased": (Qwen3Config(**shared, hidden_size=24, num_attention_heads=2, num_key_value_heads=2, head_dim=8, rope_theta=10000.0,
                                 tie_word_embeddings=False, attention_bias=True), torch.float32, "9KB"),
    "smollm3": (SmolLM3Config(**{**shared, "num_hidden_layers": 4}, hidden_size=16, num_attention_heads=2, num_key_value_heads=1,
                              tie_word_embeddings=True, rope_scaling={"rope_type": "dynamic", "factor": 2.0}), torch.bfloat16, "1GB"),
    "mistral": (MistralConfig(**small, sliding_window=WINDOW, rope_theta=1000.0, tie_word_embeddings=False), torch.bfloat16, "1GB"),
    "ministral": (MinistralConfig(**{**small, "num_hidden_layers": 3}, sliding_window=WINDOW, rope_theta=1000.0, tie_word_embeddings=True,
                                  layer_types=["sliding_attention", "full_attention", "sliding_attention"]), torch.bfloat16, "1GB"),
    "ministral3": (Ministral3Config(**small, tie_word_embeddings=True,
                                    rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 1.0,
                                                     "mscale_all_dim": 1.0, "beta_fast": 4.0, "beta_slow": 0.5,
                                                     "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}),
                   torch.bfloat16, "1GB"),
    "qwen2-window": (Qwen2Config(**two_heads, tie_word_embeddings=True, use_sliding_window=True,
                                 sliding_window=WINDOW, max_window_layers=1), torch.bfloat16, "1GB"),
    "smollm3-window": (SmolLM3Config(**two_heads, use_sliding_window=True,
                                     sliding_window=WINDOW, no_rope_layers=[1, 0], tie_word_embeddings=True), torch.bfloat16, "1GB"),
    "olmo2": (Olmo2Config(**two_heads, rope_theta=500.0, tie_word_embeddings=False), torch.bfloat16, "1GB"),
    "olmo3": (Olmo3Config(**{**two_heads, "num_hidden_layers": 3}, sliding_window=WINDOW, tie_word_embeddings=False,
                          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                          rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
                                           "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0,
                                                              "beta_slow": 0.5, "original_max_position_embeddings": 12,
                                                              "attention_factor": 1.2}}), torch.bfloat16, "1GB"),
    "granite": (GraniteConfig(**two_heads, rope_theta=1000.0, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                              logits_scaling=1.5, tie_word_embeddings=True), torch.bfloat16, "1GB"),
    "granite4-nope": (GraniteMoeHybridConfig(**{**two_heads, "intermediate_size": 20}, shared_intermediate_size=24, num_local_experts=0,
                                             num_experts_per_tok=0, layer_types=["full_attention"] * 2, position_embedding_type=None,
                                             mamba_n_heads=4, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                                             logits_scaling=1.5, tie_word_embeddings=True), torch.bfloat16, "1GB"),
    "gemma3": (Gemma3TextConfig(**{**small, "num_hidden_layers": 3}, sliding_window=WINDOW, query_pre_attn_scalar=12,
                                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                                 "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}}),
               torch.bfloat16, "1GB"),
    "phi3-longrope": (Phi3Config(**{**two_heads, "hidden_size": 32}, rope_theta=1000.0, original_max_position_embeddings=40,
                                 tie_word_embeddings=True, partial_rotary_factor=0.5,
                                 rope_scaling={"type": "longrope", "short_factor": [1.0, 1.3, 1.7, 2.0],
                                               "long_factor": [1.5, 2.0, 4.0, 8.0]}), torch.bfloat16, "1GB"),
    # Of the rows, the first two are longer than the original context, and the others shorter; each is computed alone.
    "phi3-longrope-long": (Phi3Config(**{**two_heads, "hidden_size": 32}, rope_theta=1000.0, original_max_position_embeddings=10,
                                      tie_word_embeddings=True, partial_rotary_factor=0.5,
                                      rope_scaling={"type": "longrope", "short_factor": [1.0, 1.3, 1.7, 2.0],
                                                    "long_factor": [1.5, 2.0, 4.0, 8.0]}), torch.bfloat16, "1GB"),
}

lengths = [40, 12, 9, 3]


def logprobs(model, tokens):
    logits = model(torch.tensor([tokens])).logits[0]
    return torch.log_softmax(logits[:-1].double(), -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def loss_of(model, rows, weights):
    return -sum((torch.tensor(w[1:]).double() * logprobs(model, r)).sum() for r, w in zip(rows, weights))


def gradients(model, named, rows, weights):
    model.zero_grad()
    loss = loss_of(model, rows, weights)
    loss.backward()
    return {"loss": loss.item(), "gradients": {k: [float(f"{x:.7g}") for x in v.grad.flatten().tolist()] for k, v in named.items()}}


def greedy(model, prompt, count):
    """The likeliest continuation, by the cache, with the whole distribution of every step."""
    steps, past, given = [], None, torch.tensor([prompt])
    for _ in range(count):
        out = model(given, past_key_values=past, use_cache=True)
        distribution = torch.log_softmax(out.logits[0, -1].double(), -1)
        steps.append({"token": int(distribution.argmax()), "logprobs": [round(x, 7) for x in distribution.tolist()]})
        past, given = out.past_key_values, torch.tensor([[steps[-1]["token"]]])
    return steps


for seed, (name, (config, dtype, shard)) in enumerate(FAMILIES.items()):
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    torch.manual_seed(11 + seed)
    target = here / name
    shutil.rmtree(target, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "norm" in key:
                p.add_(0.3 * torch.randn_like(p))
            elif key.endswith("bias"):
                p.copy_(0.2 * torch.randn_like(p))
    model.to(dtype).save_pretrained(target / "model", max_shard_size=shard)
    # What is stored is what counts: the weights as the files have them, computed with in float32.
    model = transformers.AutoModelForCausalLM.from_pretrained(target / "model", dtype=torch.float32, attn_implementation="eager").eval()
    named = dict(model.named_parameters())
    rows = [torch.randint(0, config.vocab_size, (n,)).tolist() for n in lengths]
    weights = [[0.0] + [0.0 if (t * 7 + i) % 5 == 0 else 0.1 * (1 + t % 3) for t in range(1, n)] for i, n in enumerate(lengths)]
    with torch.no_grad():
        expected = {
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
            "rows": rows, "weights": weights,
            "logprobs": [[0.0] + logprobs(model, r).tolist() for r in rows],
            "greedy": greedy(model, rows[1], 20),
        }
    expected["full"] = gradients(model, named, rows, weights)

    adapted = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                                                         target_modules=EVERY_LINEAR))
    trained = {k.replace(".default", ""): v for k, v in adapted.named_parameters() if v.requires_grad}
    with torch.no_grad():
        for p in trained.values():
            p.copy_(0.3 * torch.randn_like(p))
        expected["lora"] = {"logprobs": [[0.0] + logprobs(adapted, r).tolist() for r in rows], "greedy": greedy(adapted, rows[1], 20)}
    expected["lora"].update(gradients(adapted, trained, rows, weights))
    adapted.save_pretrained(target / "adapter")
    (target / "adapter/README.md").unlink()
    settings = json.loads((target / "adapter/adapter_config.json").read_text())
    # The same bytes in every directory and every run.
    modules = {key.split(".")[-3] for key in trained}
    settings.update(base_model_name_or_path=name, target_modules=sorted(modules))
    (target / "adapter/adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (target / "expected.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode(), mtime=0))
