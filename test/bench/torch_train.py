"""Times training steps in plain PyTorch: torch_train.py <TrainInput as JSON>. The counterpart of train-engine.ts."""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch_llama import build

WARM_UP_STEPS = 3

given = json.loads(sys.argv[1])
config, model = build(given["directory"], given["threads"])
rows, tokens, trained = given["rows"], given["tokens"], given["trained"]
data = torch.tensor([[(row * 31 + t * 17 + (row * t) % 7) % 500 for t in range(tokens)] for row in range(rows)])
gains = [p for p in model.parameters() if p.dim() == 1]
matrices = [p for p in model.parameters() if p.dim() > 1]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.01}, {"params": gains, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99), fused=True
)
parameters = matrices + gains


def step():
    # As in the engine, only positions that predict a trained token go through the head.
    hidden = model.hidden(data[:, :-1])[:, -trained:]
    loss = F.cross_entropy(model.logits(hidden).flatten(0, 1), data[:, -trained:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


loss = 0.0
for _ in range(WARM_UP_STEPS):
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
