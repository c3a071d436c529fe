"""Times nothing but the products with weights that a batch needs, in PyTorch: torch_products.py <file with SampleInput as JSON>. No engine that computes them in float32 is faster by more than its products are."""

import json
import statistics
import sys
import time

import torch

with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
torch.set_num_threads(given["threads"])
torch.set_grad_enabled(False)
with open(given["directory"] + "/config.json") as file:
    config = json.load(file)
hidden, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
layer = [(hidden, (heads + 2 * kv_heads) * d), (heads * d, hidden), (hidden, 2 * inner), (inner, hidden)]
# As a linear layer keeps them, [out, in]; the head comes last, and in a prompt only its last token goes through it.
weights = [torch.randn(columns, rows) for rows, columns in layer * config["num_hidden_layers"] + [(hidden, config["vocab_size"])]]


def products(inputs, chosen):
    for weight in chosen:
        torch.mm(inputs[weight.shape[1]], weight.t())


def inputs_of(rows):
    return {width: torch.randn(rows, width) for width in {weight.shape[1] for weight in weights}}


results = []
for size in given["batches"]:
    prompt, token = inputs_of(size * given["prompt"]), inputs_of(size)

    def batch():
        products(prompt, weights[:-1])
        products(token, weights[-1:])
        for _ in range(given["tokens"] - 1):
            products(token, weights)

    batch()
    batch()
    times = []
    cpu = time.process_time()
    end = time.perf_counter() + given["seconds"]
    while time.perf_counter() < end:
        start = time.perf_counter()
        batch()
        times.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    results.append({"ms": statistics.median(times) * 1000, "cpuMs": cpu * 1000 / len(times)})
print(json.dumps(results))
