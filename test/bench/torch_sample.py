"""Times cached, batched sampling in plain PyTorch: torch_sample.py <file with SampleInput as JSON>. The counterpart of sample-engine.ts."""

import json
import statistics
import sys
import time

import torch
from torch_llama import build

with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
config, model = build(given["directory"], given["threads"])
device = given.get("device") or "cpu"
model.to(device)
prompt, tokens = given["prompt"], given["tokens"]


@torch.inference_mode()
def batch(size):
    """One prefill, then one token for every row at a time; the log-probability of each is kept, as the engine does."""
    ids = torch.tensor([[(row * 31 + t * 17 + (row * t) % 7) % 500 for t in range(prompt)] for row in range(size)], device=device)
    shape = (size, config["num_key_value_heads"], prompt + tokens, config["head_dim"])
    caches = [(torch.empty(shape, device=device), torch.empty(shape, device=device)) for _ in range(config["num_hidden_layers"])]
    drawn, logprobs, start = [], [], 0
    for _ in range(tokens):
        logprob = torch.log_softmax(model.logits(model.hidden(ids, caches, start)[:, -1]), dim=-1)
        start += ids.shape[1]
        ids = torch.multinomial(logprob.exp(), 1)
        logprobs.append(logprob.gather(1, ids))
        drawn.append(ids)
    return torch.cat(drawn, 1).tolist(), torch.cat(logprobs, 1).tolist()


results = []
for size in given["batches"]:
    batch(size)
    batch(size)
    times = []
    cpu = time.process_time()
    end = time.perf_counter() + given["seconds"]
    while time.perf_counter() < end:
        start = time.perf_counter()
        batch(size)
        times.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    results.append({"ms": statistics.median(times) * 1000, "cpuMs": cpu * 1000 / len(times)})
print(json.dumps(results))
