"""Writes the expected values of `policy-loss.test.ts`: every setting of the policy loss, by PyTorch's autograd in float64.

    python test/oracle/policy-loss.py

Needs torch; the test does not. Writes `policy-loss.json.gz`. The loss is written as its formulas say it, over the tokens of all
rows at once, with the gradient stopped where they stop it; nothing of the gradient is derived by hand.
"""

import gzip
import itertools
import json
import pathlib
import random

import torch

torch.manual_seed(11)
random.seed(11)
torch.set_default_dtype(torch.float64)
lengths = [5, 1, 4, 3]
row = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
count = len(row)
new = -2 * torch.rand(count) - 0.05
old = new + 0.6 * torch.randn(count)
known = torch.ones(count, dtype=torch.bool)
known[[3, 8]] = False
advantage = torch.tensor([1.4, -0.9, -1.1, 0.6])[row]
weight = torch.tensor([0.05, 0.2, 0.07, 0.1])[row]
reference = new + 0.3 * torch.randn(count)


def row_mean(x):
    return torch.stack([x[row == i].mean() for i in range(len(lengths))])[row]


def loss_of(n, c):
    art = c["compat"] == "art"
    sampled = torch.where(known, old, n.detach())
    o = n.detach() if c["precalculates"] else sampled
    d = n - o
    token, sequence = torch.exp(d), torch.exp(row_mean(d))
    ratio = {
        "token": token, "sequence": sequence, "average": (token + sequence) / 2,
        "geometric_average": token.sqrt() * sequence.sqrt(),
    }[c["level"]]
    if c["maxNegativeRatio"] is not None:
        bounded = ratio.clamp(max=c["maxNegativeRatio"])
        ratio = bounded if art else torch.where(advantage < 0, bounded, ratio)
    low, high = 1 - c["epsilon"], 1 + c["epsilonHigh"]
    kept = torch.ones(count)
    if c["masksRatio"]:
        inside = (ratio > low) & (ratio < high)
        if art:
            ratio = torch.where(inside, ratio, torch.zeros(()))
        else:
            kept = inside.double()
    a, kl = advantage - c["tau"] * d.detach(), None
    if c["kl"] is not None:
        k = (o if c["kl"]["source"] == "sample" else n).detach() - reference
        kl = k.mean()
        a = a + c["kl"]["coefficient"] * ((row_mean(k) if art else kl) - k)
    if c["kind"] == "ppo":
        loss = -torch.minimum(ratio * a, ratio.clamp(low, high) * a)
    else:
        loss = -ratio.detach().clamp(low, high) * a * n
    if c["truncation"] is not None:
        off = torch.exp(o - sampled) if c["precalculates"] else ratio
        loss = loss * off.detach().clamp(max=c["truncation"])
    return (loss * kept * weight).sum(), kl


names = ["kind", "level", "tau", "masksRatio", "maxNegativeRatio", "truncation", "precalculates", "kl", "compat"]
choices = [
    ["cispo", "ppo"], ["token", "sequence", "average", "geometric_average"], [0, 0.5], [False, True], [None, 1.1], [None, 1.05],
    [False, True], [None, {"coefficient": 0.3, "source": "sample"}, {"coefficient": 0.3, "source": "current_learner"}], [None, "art"],
]
every = list(itertools.product(*choices))
alone = [x for x in every if sum(v != choices[i][0] for i, v in enumerate(x) if i > 1) <= 1]
picked = alone + [x for x in random.sample(every, 200) if x not in alone]
cases = []
for x in picked:
    c = dict(zip(names, x))
    c["epsilon"], c["epsilonHigh"] = random.choice([(0.2, 0.28), (1.0, 4.0), (0.5, 0.5)])
    n = new.clone().requires_grad_()
    loss, kl = loss_of(n, c)
    loss.backward()
    cases.append({"objective": c, "loss": loss.item(), "kl": None if kl is None else kl.item(), "derivatives": n.grad.tolist()})

out = {
    "versions": {"torch": torch.__version__}, "lengths": lengths, "new": new.tolist(),
    "old": [x if k else None for x, k in zip(old.tolist(), known.tolist())], "reference": reference.tolist(),
    "advantages": advantage.tolist(), "weights": weight.tolist(), "cases": cases,
}
path = pathlib.Path(__file__).parent / "policy-loss.json.gz"
path.write_bytes(gzip.compress(json.dumps(out).encode(), mtime=0))
