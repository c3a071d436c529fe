"""Writes the expected values of `llama.test.ts`: a small random Llama in Hugging Face transformers.

    python test/oracle/llama.py

Needs torch and transformers; the test does not. Writes `llama/model` (the model's files) and `llama/expected.json.gz`.
"""

import gzip
import json
import pathlib

import safetensors.torch
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(7)
torch.set_num_threads(1)
here = pathlib.Path(__file__).parent / "llama"

config = LlamaConfig(
    vocab_size=48, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0,
    tie_word_embeddings=True, initializer_range=0.2, attention_bias=False, mlp_bias=False,
)
model = LlamaForCausalLM(config).float()
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.3 * torch.randn_like(p))
(here / "model").mkdir(parents=True, exist_ok=True)
named = dict(model.named_parameters())
safetensors.torch.save_file({k: v.detach().clone().contiguous() for k, v in named.items()}, here / "model/model.safetensors")
(here / "model/config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "vocab_size": 48, "hidden_size": 32, "intermediate_size": 56,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "initializer_range": 0.2, "attention_bias": False, "mlp_bias": False, "model_type": "llama"}, indent=2))

lengths = [5, 12, 9, 3]
rows = [torch.randint(0, 48, (n,)).tolist() for n in lengths]
weights = [[0.0] + [0.0 if (t * 7 + i) % 5 == 0 else 0.1 * (1 + t % 3) for t in range(1, n)] for i, n in enumerate(lengths)]
advantages = [[0.0] + [((t * 13 + i * 5) % 7 - 3) / 2 for t in range(1, n)] for i, n in enumerate(lengths)]


def logprobs(tokens):
    logits = model(torch.tensor([tokens])).logits[0]
    return torch.log_softmax(logits[:-1].double(), -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


old = [[0.0] + (logprobs(r).detach() + 0.4 * torch.sin(torch.arange(len(r) - 1) * 1.7 + i)).tolist() for i, r in enumerate(rows)]


def loss_of(kind):
    total = 0.0
    for i, r in enumerate(rows):
        n, w = logprobs(r), torch.tensor(weights[i][1:]).double()
        if kind == "cross-entropy":
            total = total - (w * n).sum()
            continue
        a, ratio = torch.tensor(advantages[i][1:]).double(), torch.exp(n - torch.tensor(old[i][1:]).double())
        if kind == "cispo":
            total = total - (w * ratio.detach().clamp(0.8, 1.3) * a * n).sum()
        else:
            total = total - (w * torch.minimum(ratio * a, ratio.clamp(0.8, 1.3) * a)).sum()
    return total


expected = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    "rows": rows, "weights": weights, "advantages": advantages, "old": old,
    "logprobs": [[0.0] + logprobs(r).tolist() for r in rows], "losses": {},
}
for kind in ["cross-entropy", "cispo", "ppo"]:
    model.zero_grad()
    loss = loss_of(kind)
    loss.backward()
    expected["losses"][kind] = {"loss": loss.item(), "gradients": {k: [round(x, 9) for x in v.grad.flatten().tolist()] for k, v in named.items()}}

# Three AdamW steps on the cross-entropy, clipped: matrices decay, gains do not.
decayed = [p for k, p in named.items() if "norm" not in k]
gains = [p for k, p in named.items() if "norm" in k]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.99), eps=1e-8)
expected["adamw"] = {"norms": []}
for _ in range(3):
    optimizer.zero_grad()
    loss_of("cross-entropy").backward()
    expected["adamw"]["norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
    optimizer.step()
expected["adamw"]["weights"] = {k: [round(x, 9) for x in v.flatten().tolist()] for k, v in named.items()}

(here / "expected.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode(), mtime=0))
