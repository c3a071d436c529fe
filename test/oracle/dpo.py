"""Writes the expected values of `dpo.test.ts`: losses and gradients of preference pairs on the small Llama of `llama.py`.

    python test/oracle/dpo.py

Needs torch, transformers, trl, tokenizers and datasets; the test does not. Writes `dpo.json.gz`. Losses and gradients are computed in float64
by PyTorch's autograd from the definition of the loss. Where TRL has the same loss (`sigmoid`, `sigmoid_norm`), the loss and the metrics of its
`DPOTrainer` in float32 are stored as well. The reference policy is the same model with perturbed weights.
"""

import copy
import gzip
import json
import pathlib
import tempfile

import datasets
import tokenizers
import torch
import torch.nn.functional as F
import transformers
import trl
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

torch.manual_seed(11)
torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
VOCABULARY, EOS = 48, 0
PARAMETERS = ["model.norm.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"]
SETTINGS = [
    {"beta": 0.1, "label_smoothing": 0.0, "length_normalization": False},
    {"beta": 0.5, "label_smoothing": 0.0, "length_normalization": False},
    {"beta": 0.1, "label_smoothing": 0.2, "length_normalization": False},
    {"beta": 0.1, "label_smoothing": 0.0, "length_normalization": True},
    {"beta": 2.0, "label_smoothing": 0.1, "length_normalization": True},
]

model = LlamaForCausalLM.from_pretrained(here / "llama/model", dtype=torch.float64, attn_implementation="eager")
reference = copy.deepcopy(model)
with torch.no_grad():
    for parameter in reference.parameters():
        parameter.add_(0.03 * torch.randn_like(parameter))


def tokens(count):
    return torch.randint(1, VOCABULARY, (count,)).tolist()


# Prompt, chosen and rejected answer; answers end with the token that ends a turn.
pairs = [
    {"prompt": tokens(prompt), "chosen": tokens(chosen) + [EOS], "rejected": tokens(rejected) + [EOS]}
    for prompt, chosen, rejected in [(5, 6, 2), (3, 1, 9), (8, 4, 4), (1, 12, 3)]
]


def logprob(policy, pair, side):
    ids = pair["prompt"] + pair[side]
    logits = policy(torch.tensor([ids])).logits[0, :-1]
    each = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return each[len(pair["prompt"]) - 1 :].sum()


def sums(policy):
    return {side: torch.stack([logprob(policy, pair, side) for pair in pairs]) for side in ["chosen", "rejected"]}


with torch.no_grad():
    fixed = sums(reference)


def loss_of(setting):
    policy, rewards = sums(model), {}
    for side in ["chosen", "rejected"]:
        lengths = torch.tensor([len(pair[side]) for pair in pairs]) if setting["length_normalization"] else 1
        rewards[side] = setting["beta"] * (policy[side] - fixed[side]) / lengths
    h, epsilon = rewards["chosen"] - rewards["rejected"], setting["label_smoothing"]
    loss = (-(1 - epsilon) * F.logsigmoid(h) - epsilon * F.logsigmoid(-h)).mean()
    return loss, {
        "rewards/chosen": rewards["chosen"], "rewards/rejected": rewards["rejected"], "rewards/margins": h,
        "rewards/accuracies": (h > 0).double(), "logps/chosen": policy["chosen"], "logps/rejected": policy["rejected"],
    }


def trl_values(setting):
    """Loss and metrics of TRL's trainer for one batch of all pairs; None for a loss that TRL does not have."""
    if setting["label_smoothing"] > 0:
        return None
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t0", pad_token="t0")
    text = lambda ids: " ".join(f"t{i}" for i in ids)
    rows = datasets.Dataset.from_list([{"prompt": text(p["prompt"]) + " ", "chosen": text(p["chosen"]), "rejected": text(p["rejected"])} for p in pairs])
    with tempfile.TemporaryDirectory() as directory:
        config = trl.DPOConfig(
            directory, beta=setting["beta"], loss_type=["sigmoid_norm" if setting["length_normalization"] else "sigmoid"], bf16=False, use_cpu=True,
            per_device_train_batch_size=len(pairs), report_to="none", gradient_checkpointing=False,
        )
        trainer = trl.DPOTrainer(
            copy.deepcopy(model).float(), copy.deepcopy(reference).float(), args=config, train_dataset=rows, processing_class=tokenizer,
        )
        trainer.model.train()
        batch = trainer.data_collator([trainer.train_dataset[i] for i in range(len(pairs))])
        assert [row[mask == 1].tolist() for row, mask in zip(batch["input_ids"], batch["completion_mask"])] == [p[s] for s in ["chosen", "rejected"] for p in pairs]
        loss = trainer.compute_loss(trainer.model, batch).item()
        return {"loss": loss, **{name: values[0] for name, values in trainer._metrics["train"].items() if name.startswith(("rewards/", "logps/"))}}


cases, named = [], dict(model.named_parameters())
for setting in SETTINGS:
    model.zero_grad()
    loss, metrics = loss_of(setting)
    loss.backward()
    own = {"loss": loss.item(), **{name: value.mean().item() for name, value in metrics.items()}}
    theirs = trl_values(setting)
    if theirs is not None:
        assert abs(theirs["loss"] - own["loss"]) < 1e-5, (theirs, own)
    gradients = {name: [float(f"{value:.8g}") for value in named[name].grad.flatten().tolist()] for name in PARAMETERS}
    cases.append({"setting": setting, "metrics": own, "trl": theirs, "gradients": gradients})

written = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
    "pairs": pairs, "reference": [{side: fixed[side][i].item() for side in fixed} for i in range(len(pairs))], "cases": cases,
}
(here / "dpo.json.gz").write_bytes(gzip.compress(json.dumps(written).encode(), mtime=0))
