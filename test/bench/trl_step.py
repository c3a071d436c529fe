"""RL steps with TRL's GRPO trainer and a PEFT adapter: trl_step.py <file with RlStepInput as JSON>. The counterpart of rl-step-library.ts."""

import json
import re
import resource
import sys
import tempfile
import time

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
torch.set_num_threads(given["threads"])
batch = given["groups"] * given["size"]
rows = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": problem["prompt"]}], "answer": problem["answer"]} for problem in given["problems"]]
)
rewards, tokens = [], []


def reward(completions, answer, completion_ids, **_):
    texts = [completion[0]["content"].strip() for completion in completions]
    if given.get("reward") == "digits":
        scores = [len(re.findall(r"[0-9]", text)) / max(1, len(text)) for text in texts]
    else:
        scores = [float(text == right) + 0.2 * bool(re.fullmatch(r"\d+", text)) for text, right in zip(texts, answer)]
    rewards.append(sum(scores) / len(scores))
    tokens.append(sum(map(len, completion_ids)))
    return scores


class Clock(TrainerCallback):
    """Wall and processor time at the start and after each optimizer step."""

    def __init__(self):
        self.marks = []

    def mark(self):
        self.marks.append((time.perf_counter(), time.process_time()))

    def on_train_begin(self, *_, **__):
        self.mark()

    def on_step_end(self, *_, **__):
        self.mark()


with tempfile.TemporaryDirectory() as output:
    config = GRPOConfig(
        output_dir=output,
        per_device_train_batch_size=batch,
        num_generations=given["size"],
        max_completion_length=given["tokens"],
        max_steps=given["steps"],
        learning_rate=given["learningRate"],
        lr_scheduler_type="constant",
        max_grad_norm=given["maxGradNorm"],
        temperature=1.0,
        beta=0.0,
        optim="adamw_torch",
        seed=given["seed"],
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapter = LoraConfig(r=given["rank"], lora_alpha=2 * given["rank"], target_modules=targets)
    clock = Clock()
    trainer = GRPOTrainer(
        model=given["directory"], reward_funcs=reward, args=config, train_dataset=rows, peft_config=adapter, callbacks=[clock]
    )
    trainer.train()

steps = [
    {"seconds": end[0] - start[0], "cpuSeconds": end[1] - start[1], "tokens": count, "reward": mean}
    for start, end, count, mean in zip(clock.marks, clock.marks[1:], tokens, rewards)
]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
print(json.dumps({"steps": steps, "phases": [], "peakMb": peak}))
