"""Writes the expected values of `preferences.test.ts`: three steps of TRL's DPOTrainer on SmolLM2-135M-Instruct, all parameters, in float32.

    python test/real/preferences.py <directory with hf/>

Needs torch, transformers, trl and datasets; the test does not. Writes `preferences.json`. Two differences that `docs/explanation/training.md`
lists are undone: TRL also trains the line break that the template writes after an answer, and transformers drops the gradient of the pad
token's input embedding.
"""

import json
import pathlib
import sys
import tempfile

import datasets
import torch
import transformers
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer

directory = pathlib.Path(sys.argv[1]) / "hf"
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(directory)
RATE, STEPS, BETA = 1e-5, 3, 0.1
PAIRS = [
    ("What is the capital of France?", "Paris.", "The capital of France is a city with a long history, and its name is Lyon."),
    ("Write a haiku about winter.", "Snow on quiet roofs,\na lamp in a single house,\nbreath above the path.", "Winter is cold."),
    ("What is 12 plus 9?", "12 plus 9 is 21.", "12 plus 9 is 22."),
    ("Name a color.", "Green", "I am sorry, but I cannot name a color."),
]
rows = [
    {"prompt": [{"role": "user", "content": question}], "chosen": [{"role": "assistant", "content": chosen}], "rejected": [{"role": "assistant", "content": rejected}]}
    for question, chosen, rejected in PAIRS
]

model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
with tempfile.TemporaryDirectory() as output:
    config = trl.DPOConfig(
        output, beta=BETA, learning_rate=RATE, lr_scheduler_type="constant", max_steps=STEPS, per_device_train_batch_size=len(PAIRS), bf16=False, use_cpu=True,
        adam_beta1=0.9, adam_beta2=0.99, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, report_to="none", save_strategy="no",
        gradient_checkpointing=False,
    )
    trainer = trl.DPOTrainer(model, args=config, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]

    def cut(example):
        for side in ["chosen_ids", "rejected_ids"]:
            assert example[side][-1:] == newline and example[side][-2] == tokenizer.eos_token_id
        return {side: example[side][:-1] for side in ["chosen_ids", "rejected_ids"]}

    trainer.train_dataset = trainer.train_dataset.map(cut)
    trainer.model.model.embed_tokens.padding_idx = None
    trainer.ref_model.model.embed_tokens.padding_idx = None
    trainer.train()
names = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
steps = [{name: float(entry[name]) for name in names} for entry in trainer.state.log_history if "loss" in entry]
assert len(steps) == STEPS
content = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
    "config": {"beta": BETA, "learning_rate": RATE, "epochs": STEPS, "batch_size": len(PAIRS)},
    "pairs": rows, "steps": steps,
}
pathlib.Path(__file__).with_name("preferences.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
