"""Times training steps in plain PyTorch: torch_train.py <file with TrainInput as JSON>. The counterpart of train-engine.ts."""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_llama import build

# Fewer if they take longer than the measurement.
WARM_UP_STEPS = 3


class Adapted(nn.Module):
    """A frozen linear map with a low-rank term for each of its parts, as the engine has them."""

    def __init__(self, linear, parts, rank):
        super().__init__()
        self.linear = linear
        self.a = nn.ParameterList(nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5) for _ in parts)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(part, rank)) for part in parts)

    def forward(self, x):
        # alpha = 2 * rank
        deltas = [F.linear(F.linear(x, a) * 2, b) for a, b in zip(self.a, self.b)]
        return self.linear(x) + (deltas[0] if len(deltas) == 1 else torch.cat(deltas, dim=-1))


def add_adapters(config, model, rank):
    model.requires_grad_(False)
    d = config["head_dim"]
    for layer in model.layers:
        parts = {"qkv": [config["num_attention_heads"] * d] + 2 * [config["num_key_value_heads"] * d]}
        for name in ("qkv", "output", "gate", "up", "down"):
            linear = getattr(layer, name)
            setattr(layer, name, Adapted(linear, parts.get(name, [linear.out_features]), rank))


with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
config, model = build(given["directory"], given["threads"])
if given["rank"] is not None:
    add_adapters(config, model, given["rank"])
device = given.get("device") or "cpu"
model.to(device)
rows = given["rows"]
longest = max(len(row["tokens"]) for row in rows)
data = torch.tensor([row["tokens"] + [0] * (longest - len(row["tokens"])) for row in rows], device=device)
# The flat positions that predict a trained token: as in the engine, only they go through the head.
width = longest - 1
selected = torch.tensor([at * width + t - 1 for at, row in enumerate(rows) for t in range(len(row["tokens"]) - row["trained"], len(row["tokens"]))], device=device)
targets = torch.tensor([token for row in rows for token in row["tokens"][len(row["tokens"]) - row["trained"] :]], device=device)
gains = [p for p in model.parameters() if p.requires_grad and p.dim() == 1]
matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
optimizer = torch.optim.AdamW(
    [{"params": each, "weight_decay": decay} for each, decay in ((matrices, 0.01), (gains, 0.0)) if each], lr=1e-3, betas=(0.9, 0.99), fused=True
)
parameters = matrices + gains


def step():
    # Rows shorter than the longest are padded at their end, which causal attention does not see.
    hidden = model.hidden(data[:, :-1]).flatten(0, 1)[selected]
    loss = F.cross_entropy(model.logits(hidden), targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


loss = step()
warm_up_end = time.perf_counter() + given["seconds"]
for _ in range(WARM_UP_STEPS - 1):
    if time.perf_counter() < warm_up_end:
        loss = step()
times = []
cpu = time.process_time()
end = time.perf_counter() + given["seconds"]
while time.perf_counter() < end:
    start = time.perf_counter()
    loss = step()
    times.append(time.perf_counter() - start)
cpu = time.process_time() - cpu
print(json.dumps({"msPerStep": statistics.median(times) * 1000, "cpuMsPerStep": cpu * 1000 / len(times), "loss": loss}))
