"""Writes the expected values of `llama-policy.test.ts`: policy losses whose tokens depend on each other, through a whole model.

    python test/oracle/llama-policy.py

Needs torch and transformers; the test does not. The model, rows, weights, advantages and old log-probabilities are those of
`llama.py`; the gradients are autograd's, back to the parameters. Writes `llama-policy.json.gz`.
"""

import gzip
import json
import pathlib

import torch
import transformers
from transformers import LlamaForCausalLM

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
model = LlamaForCausalLM.from_pretrained(here / "llama/model", dtype=torch.float64, attn_implementation="eager")
data = json.loads(gzip.decompress((here / "llama/expected.json.gz").read_bytes()))
PARAMETERS = ["model.norm.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"]
LOW, HIGH = 0.8, 1.3


def logprobs(tokens):
    logits = model(torch.tensor([tokens])).logits[0]
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def ratio_of(level, d):
    token, sequence = torch.exp(d), torch.exp(d.mean()).expand(len(d))
    return {"token": token, "sequence": sequence, "average": (token + sequence) / 2, "geometric_average": (token * sequence).sqrt()}[level]


def loss_of(case):
    trained = [[t for t in range(1, len(r)) if w[t] != 0] for r, w in zip(data["rows"], data["weights"])]
    pick = lambda name, i: torch.tensor([data[name][i][t] for t in trained[i]], dtype=torch.float64)
    new = [logprobs(r)[torch.tensor(at) - 1] for r, at in zip(data["rows"], trained)]
    old = [n.detach() if case["precalculates"] else pick("old", i) for i, n in enumerate(new)]
    # A reference policy that is another function of the tokens.
    reference = [pick("old", i) * 0.9 - 0.1 for i in range(len(new))]
    divergence = [(n.detach() if case["kl"] == "current_learner" else o) - q for n, o, q in zip(new, old, reference)]
    center = torch.cat(divergence).mean()
    total = 0.0
    for i, (n, o, k) in enumerate(zip(new, old, divergence)):
        ratio, a = ratio_of(case["level"], n - o), pick("advantages", i)
        if case["maxNegativeRatio"] is not None:
            ratio = torch.where(a < 0, ratio.clamp(max=case["maxNegativeRatio"]), ratio)
        kept = ((ratio > LOW) & (ratio < HIGH)).double() if case["masksRatio"] else torch.ones(len(n), dtype=torch.float64)
        a = a - case["tau"] * (n - o).detach()
        if case["kl"] is not None:
            a = a + 0.3 * (center - k)
        if case["kind"] == "ppo":
            loss = -torch.minimum(ratio * a, ratio.clamp(LOW, HIGH) * a)
        else:
            loss = -ratio.detach().clamp(LOW, HIGH) * a * n
        if case["truncation"] is not None:
            off = torch.exp(o - pick("old", i)) if case["precalculates"] else ratio
            loss = loss * off.detach().clamp(max=case["truncation"])
        total = total + (loss * kept * pick("weights", i)).sum()
    return total


plain = {"kind": "ppo", "level": "token", "tau": 0, "masksRatio": False, "maxNegativeRatio": None, "truncation": None, "precalculates": False, "kl": None}
cases = [{**plain, "kind": kind, "level": level} for kind in ["cispo", "ppo"] for level in ["sequence", "average", "geometric_average"]]
cases += [
    {**plain, "kind": "cispo", "masksRatio": True, "tau": 0.5},
    {**plain, "level": "sequence", "maxNegativeRatio": 1.05, "kl": "current_learner"},
    {**plain, "kind": "cispo", "precalculates": True, "truncation": 1.1},
    {**plain, "level": "geometric_average", "truncation": 1.05, "kl": "sample", "tau": 0.2},
]
named, out = dict(model.named_parameters()), []
for case in cases:
    model.zero_grad()
    loss = loss_of(case)
    loss.backward()
    gradients = {name: [round(x, 9) for x in named[name].grad.flatten().tolist()] for name in PARAMETERS}
    out.append({"settings": case, "loss": loss.item(), "gradients": gradients})
versions = {"torch": torch.__version__, "transformers": transformers.__version__}
(here / "llama-policy.json.gz").write_bytes(gzip.compress(json.dumps({"versions": versions, "cases": out}).encode(), mtime=0))
