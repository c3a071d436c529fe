"""Writes the expected values of `loss-options.test.ts`: entropy bonus, constant normalizer, truncated trajectories, token advantages and
weights, and the scope of the normalization, by PyTorch's autograd in float64.

    python test/oracle/loss-options.py

Needs torch and transformers; the test does not. Writes `loss-options.json`. Three parts: losses of single tokens with their gradients by
the logits; losses of whole batches with their gradients by the log-probabilities, from rewards on; gradients of the parameters of the
small Llama of `llama.py`. Entropies are computed from `torch.distributions.Categorical`, and losses as their formulas say.
"""

import gzip
import json
import math
import pathlib

import torch
import transformers
from transformers import LlamaForCausalLM

torch.manual_seed(23)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
here = pathlib.Path(__file__).parent


def digits(values):
    return [float(f"{x:.15g}") for x in values]


def policy_loss(kind, n, old, a, low, high):
    ratio = torch.exp(n - old)
    if kind == "ppo":
        return -torch.minimum(ratio * a, ratio.clamp(low, high) * a)
    return -ratio.detach().clamp(low, high) * a * n


def entropy_of(logits):
    return torch.distributions.Categorical(logits=logits).entropy()


# Part 1: single tokens.
tokens = []
for kind in ["cispo", "ppo"]:
    for coefficient in [0.0, 0.01, 0.7]:
        for shift, a in [(0.1, 1.3), (0.5, -0.8), (-0.6, 0.9), (None, -1.1)]:
            logits = (3 * torch.randn(9)).requires_grad_()
            target = int(torch.randint(9, ()))
            n = torch.log_softmax(logits, -1)[target]
            old = n.detach() if shift is None else n.detach() - shift
            loss = policy_loss(kind, n, old, torch.tensor(a), 0.8, 1.3) - coefficient * entropy_of(logits)
            loss.backward()
            tokens.append({
                "loss": {"kind": kind, "epsilon": 0.2, "epsilonHigh": 0.3, "entropyCoefficient": coefficient},
                "logits": digits(logits.tolist()), "target": target, "old": None if shift is None else old.item(), "advantage": a,
                "value": loss.item(), "entropy": entropy_of(logits).item(), "gradient": digits(logits.grad.tolist()),
            })

# Part 2: whole batches. A trajectory has turns of sampled tokens; every turn is a row of its own.
#   environment, [reward, turns: (number of tokens, finish_reason, token advantages, token weights)]
plain_batch = [
    ("maze", [(1.0, [(3, "stop")]), (0.0, [(5, "stop"), (2, "stop")]), (0.5, [(4, "length")])]),
    ("math", [(40.0, [(2, "stop")]), (10.0, [(6, "stop")])]),
    (None, [(0.3, [(4, "stop"), (1, "stop")]), (0.7, [(3, "stop")]), (0.7, [(2, "length")]), (0.1, [(2, "stop")])]),
]
token_batch = [
    ("maze", [
        (1.0, [(3, "stop", [0.5, -1.0, 2.0], None), (2, "stop", [0.0, 0.25], [1.0, 0.0])]),
        (1.0, [(2, "stop", [-0.75, 0.125], [0.5, 2.0])]),
        (1.0, [(2, "stop", [0.0, 0.0], None)]),
    ]),
    ("math", [(1.0, [(3, "stop", None, [0.0, 1.0, 0.25])]), (0.0, [(2, "stop"), (1, "stop", None, [0.0])]), (0.5, [(4, "stop")])]),
]
batches = {"plain": plain_batch, "token": token_batch}
fields = lambda turn: (*turn, *([None] * (4 - len(turn))))


def batch_loss(batch, config, n, old):
    """The loss as the documentation defines it; `n` and `old` have every sampled token of the batch, in order."""
    flat, at, trajectories = [], 0, 0
    for environment, group in batch:
        rewards = torch.tensor([reward for reward, _ in group])
        spread = rewards.std(unbiased=False) + 1e-6 if config.get("scale_rewards", True) else 1.0
        for reward, turns in group:
            trajectories += 1
            truncated = any(fields(turn)[1] == "length" for turn in turns)
            own = []
            for turn in turns:
                count, _, advantages, weights = fields(turn)
                relative = (torch.tensor(reward) - rewards.mean()) / spread
                for k in range(count):
                    a = relative.item() if advantages is None else advantages[k]
                    own.append({"index": at, "a": a, "u": 1.0 if weights is None else weights[k], "set": environment})
                    at += 1
            if config.get("mask_truncated") and truncated:
                continue
            own = [token for token in own if token["u"] != 0]
            if all(token["a"] == 0 for token in own):
                continue
            flat += [{**token, "count": len(own)} for token in own]
    index = torch.tensor([token["index"] for token in flat])
    a, u = torch.tensor([token["a"] for token in flat]), torch.tensor([token["u"] for token in flat])
    balance = config.get("advantage_balance", 0)
    if balance > 0:
        a = torch.where(a < 0, a * (1 - balance), a)
    reduction = config.get("loss_reduction", "trajectory_mean")
    if reduction == "constant":
        # TRL's dr_grpo: (per_token_loss * mask).sum() / (batch size * max_completion_length).
        w, divisor = u, trajectories * config["loss_normalizer"]
    else:
        w = torch.ones(len(flat)) if reduction == "token_mean" else 1 / (torch.tensor([float(t["count"]) for t in flat]) + 1e-6)
        w, divisor = w / w.mean(), len(flat)
        sets = [token["set"] if config.get("advantage_scope") == "environment" else None for token in flat]
        for name in dict.fromkeys(sets):
            member = torch.tensor([each == name for each in sets])
            a = torch.where(member, a / (a.abs() * w)[member].mean(), a)
        w = w * u
    high = 5.0 if config.get("loss_fn") != "ppo" else 1.2
    low = 0.0 if config.get("loss_fn") != "ppo" else 0.8
    loss = policy_loss(config.get("loss_fn", "cispo"), n[index], old[index], a, low, high)
    return (loss * w).sum() / divisor


constant = {"loss_reduction": "constant", "loss_normalizer": 32, "scale_rewards": False}
cases = [
    ("plain", {}), ("plain", {"loss_reduction": "token_mean"}), ("plain", constant), ("plain", {**constant, "loss_fn": "ppo"}),
    ("plain", {**constant, "advantage_balance": 0.25}), ("plain", {"mask_truncated": True}), ("plain", {**constant, "mask_truncated": True}),
    ("plain", {"advantage_scope": "environment", "scale_rewards": False}), ("plain", {"scale_rewards": False}),
    ("plain", {"advantage_scope": "environment", "loss_reduction": "token_mean", "mask_truncated": True, "scale_rewards": False}),
    ("token", {}), ("token", {"loss_reduction": "token_mean"}), ("token", constant), ("token", {"loss_fn": "ppo"}),
    ("token", {"advantage_scope": "environment", "advantage_balance": 0.5}),
]
out_batches, size = [], {name: sum(fields(t)[0] for _, g in b for _, turns in g for t in turns) for name, b in batches.items()}
inputs = {}
for name in batches:
    old = -2 * torch.rand(size[name]) - 0.05
    inputs[name] = (old, old + 0.3 * torch.randn(size[name]))
for name, config in cases:
    old, new = inputs[name]
    n = new.clone().requires_grad_()
    loss = batch_loss(batches[name], config, n, old)
    loss.backward()
    out_batches.append({"batch": name, "config": config, "loss": loss.item(), "gradient": digits(n.grad.tolist())})

# Part 3: a whole model.
model = LlamaForCausalLM.from_pretrained(here / "llama/model", dtype=torch.float64, attn_implementation="eager")
data = json.loads(gzip.decompress((here / "llama/expected.json.gz").read_bytes()))
PARAMETERS = ["model.norm.weight", "model.layers.0.self_attn.k_proj.weight"]


def model_loss(kind, level, coefficient):
    total, weighted = 0.0, 0.0
    for i, row in enumerate(data["rows"]):
        logits = model(torch.tensor([row])).logits[0][:-1]
        w = torch.tensor(data["weights"][i][1:])
        trained = w != 0
        n = torch.log_softmax(logits, -1).gather(1, torch.tensor(row[1:])[:, None])[:, 0][trained]
        d = n - torch.tensor(data["old"][i][1:])[trained]
        if level == "sequence":
            d = d.mean().expand(len(d))
        a, ratio = torch.tensor(data["advantages"][i][1:])[trained], torch.exp(d)
        clipped = ratio.clamp(0.8, 1.3)
        loss = -torch.minimum(ratio * a, clipped * a) if kind == "ppo" else -clipped.detach() * a * n
        entropy = entropy_of(logits)[trained]
        total = total + (w[trained] * (loss - coefficient * entropy)).sum()
        weighted = weighted + (w[trained] * entropy).sum()
    return total, weighted


out_models, named = [], dict(model.named_parameters())
for kind, level, coefficient in [("cispo", "token", 0.5), ("ppo", "token", 0.05), ("ppo", "sequence", 0.5)]:
    model.zero_grad()
    loss, weighted = model_loss(kind, level, coefficient)
    loss.backward()
    gradients = {name: [float(f"{x:.8g}") for x in named[name].grad.flatten().tolist()] for name in PARAMETERS}
    out_models.append({"kind": kind, "level": level, "coefficient": coefficient, "loss": loss.item(), "weightedEntropy": weighted.item(), "gradients": gradients})

assert all(math.isfinite(case["loss"]) for case in out_batches)
expected = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "tokens": tokens,
    "inputs": {name: {"old": digits(old.tolist()), "new": digits(new.tolist())} for name, (old, new) in inputs.items()},
    "groups": {name: [{"environment": e, "trajectories": [{"reward": r, "turns": [dict(zip(["tokens", "finish", "advantages", "weights"], fields(t))) for t in turns]} for r, turns in g]} for e, g in b] for name, b in batches.items()},
    "batches": out_batches, "models": out_models,
}
(here / "loss-options.json").write_text(json.dumps(expected) + "\n")
