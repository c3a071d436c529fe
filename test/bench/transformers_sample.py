"""Times `generate` of transformers: transformers_sample.py <file with SampleInput as JSON>. The counterpart of sample-engine.ts."""

import json
import statistics
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
torch.set_num_threads(given["threads"])
torch.manual_seed(1)
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(given["directory"]), dtype=torch.float32).eval()
if given.get("rank") is not None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=given["rank"], lora_alpha=2 * given["rank"], target_modules="all-linear")).eval()
prompt, tokens = given["prompt"], given["tokens"]
settings = GenerationConfig(
    do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None, pad_token_id=0
)


@torch.inference_mode()
def batch(size):
    ids = torch.tensor([[(row * 31 + t * 17 + (row * t) % 7) % 500 for t in range(prompt)] for row in range(size)])
    drawn = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    if drawn.shape[1] != prompt + tokens:
        raise RuntimeError(f"expected {tokens} new tokens, got {drawn.shape[1] - prompt}")


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
