"""Writes the expected values of `exported-adapter.test.ts`: an adapter that this project trained and saved, loaded by Hugging Face PEFT.

    WHETSTONE_WRITE_ADAPTER=1 npx vitest run test/oracle/exported-adapter.test.ts   # only to make the adapter anew
    python test/oracle/exported-adapter.py

Needs torch, transformers and peft; the test does not. Reads the adapter in `exported-adapter/` and writes `expected.json` beside it: for a
few rows the log-probability of each token, and the whole distribution after the last.
"""
import json
import pathlib

import peft
import torch
import transformers

here = pathlib.Path(__file__).parent
torch.manual_seed(3)
rows = [torch.randint(0, 48, (n,)).tolist() for n in (24, 9)]


def distributions(model):
    with torch.no_grad():
        return [torch.log_softmax(model(torch.tensor([row])).logits[0].double(), -1) for row in rows]


base = transformers.AutoModelForCausalLM.from_pretrained(here / "families/llama3/model", dtype=torch.float32, attn_implementation="eager").eval()
without = distributions(base)
adapted = distributions(peft.PeftModel.from_pretrained(base, here / "exported-adapter").eval())
change = max((a - b).abs().max().item() for a, b in zip(adapted, without))
assert change > 0.1, "an adapter that changes nothing proves nothing"
expected = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
    "rows": rows,
    "logprobs": [[0.0] + [d[t, token].item() for t, token in enumerate(row[1:])] for row, d in zip(rows, adapted)],
    "last": [d[-1].tolist() for d in adapted],
    "change": change,
}
(here / "exported-adapter/expected.json").write_text(json.dumps(expected) + "\n")
