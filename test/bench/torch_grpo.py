"""The quickstart as a plain PyTorch loop: torch_grpo.py <file with GrpoPeerInput as JSON>. The counterpart of grpo-recipe.ts.

Model and tokenizer are those of transformers; prompts, settings and rates come from the file that the input names.
"""

import difflib
import functools
import json
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

with open(sys.argv[1], encoding="utf-8") as file:
    source = json.load(file)["file"]
with open(source, encoding="utf-8") as file:
    given = json.load(file)
torch.set_num_threads(given["threads"])
torch.manual_seed(given["seed"])
started = time.perf_counter()
sft, rl = given["sft"], given["rl"]
tokenizer = AutoTokenizer.from_pretrained(given["model"])
model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float32)
parameters = list(model.parameters())
optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0, fused=True)
END, PAD = tokenizer.eos_token_id, tokenizer.pad_token_id
TAGS = re.compile(r"<reversed_text>(?!.*<reversed_text>)(.*?)</reversed_text>", re.DOTALL)


@functools.cache
def prompt_tokens(prompt):
    messages = [{"role": "system", "content": given["system"]}, {"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def score(tokens, answer):
    """The reward, and whether the answer is exact."""
    found = TAGS.search(tokenizer.decode(tokens, skip_special_tokens=True))
    written = found.group(1).strip() if found else ""
    return difflib.SequenceMatcher(None, written, answer).ratio() if written else 0.0, written == answer


@torch.inference_mode()
def sample(prompts, copies, greedy):
    """Per prompt `copies` answers in a row, each as its tokens and their log-probabilities. Every prompt is read once."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])  # [P, T]
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0), use_cache=True, logits_to_keep=1)
    cache, logits = out.past_key_values, out.logits[:, -1].repeat_interleave(copies, 0)
    cache.batch_repeat_interleave(copies)
    mask = mask.repeat_interleave(copies, 0)  # [P·G, T]
    place = mask.sum(1, keepdim=True)
    ended = torch.zeros(len(mask), dtype=torch.bool)
    drawn, logprobs = [], []
    while True:
        logprob = torch.log_softmax(logits, dim=-1)
        token = logprob.argmax(-1, keepdim=True) if greedy else torch.multinomial(logprob.exp(), 1)
        drawn.append(token)
        logprobs.append(logprob.gather(1, token))
        ended |= token[:, 0] == END
        if len(drawn) == given["maxTokens"] or ended.all():
            break
        mask = torch.cat((mask, torch.ones_like(token)), dim=1)
        logits = model(token, attention_mask=mask, position_ids=place, past_key_values=cache, use_cache=True).logits[:, -1]
        place = place + 1
    answers = []
    for tokens, own in zip(torch.cat(drawn, 1).tolist(), torch.cat(logprobs, 1).tolist()):
        length = tokens.index(END) + 1 if END in tokens else len(tokens)
        answers.append((tokens[:length], own[:length]))
    return answers


def new_logprobs(rows):
    """rows: (prompt, answer) as tokens -> the log-probabilities of all answers' tokens, in order, [M]. Only they go through the head."""
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    # Rows shorter than the longest are padded at their end, which causal attention does not see.
    data = torch.tensor([prompt + answer + [PAD] * (longest - len(prompt) - len(answer)) for prompt, answer in rows])
    starts = [at * (longest - 1) + len(prompt) - 1 for at, (prompt, _) in enumerate(rows)]
    selected = torch.tensor([start + t for start, (_, answer) in zip(starts, rows) for t in range(len(answer))])
    targets = torch.tensor([token for _, answer in rows for token in answer])
    hidden = model.model(data[:, :-1], use_cache=False).last_hidden_state.flatten(0, 1)[selected]
    return -F.cross_entropy(model.lm_head(hidden), targets, reduction="none")


def optimise(rate, max_norm):
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def measure(problems):
    """Share of exact answers, greedily."""
    answers = sample([prompt_tokens(prompt) for prompt, _ in problems], 1, greedy=True)
    return statistics.fmean(score(tokens, answer)[1] for (tokens, _), (_, answer) in zip(answers, problems))


def supervise(problems):
    """One optimizer step on the mean cross-entropy of the right answers' tokens."""
    golds = [f"<reversed_text>{answer}</reversed_text>" for _, answer in problems]
    rows = [(prompt_tokens(prompt), tokenizer.encode(gold) + [END]) for (prompt, _), gold in zip(problems, golds)]
    (-new_logprobs(rows).mean()).backward()
    optimise(sft["learningRate"], sft["maxGradNorm"])


def reinforce(problems, rate):
    """Rollouts in groups, then one optimizer step of CISPO with group-relative advantages; the mean reward."""
    prompts, size = [prompt_tokens(prompt) for prompt, _ in problems], rl["groupSize"]
    rollouts = sample(prompts, size, greedy=False)
    rewards = [score(tokens, problems[at // size][1])[0] for at, (tokens, _) in enumerate(rollouts)]
    scores = torch.tensor(rewards, dtype=torch.float64).view(-1, size)  # [P, G]
    differences = scores - scores.mean(1, keepdim=True)
    differences[differences.abs() < 1e-12] = 0  # the mean's rounding teaches nothing
    advantages = (differences / (scores.std(1, correction=0, keepdim=True) + 1e-6)).flatten().tolist()
    kept = [at for at, advantage in enumerate(advantages) if advantage != 0]
    if not kept:
        return statistics.fmean(rewards)
    total = sum(abs(advantages[at]) for at in kept)  # every rollout has the same weight, the mean size of the advantages is 1
    for start in range(0, len(kept), given["microBatch"]):
        chunk = kept[start : start + given["microBatch"]]
        rows = [(prompts[at // size], rollouts[at][0]) for at in chunk]
        factors = torch.tensor([advantages[at] / total / len(rollouts[at][0]) for at in chunk for _ in rollouts[at][0]])
        new, old = new_logprobs(rows), torch.tensor([logprob for at in chunk for logprob in rollouts[at][1]])
        ratio = (new.detach() - old).exp().clamp(0, 5)
        (-(ratio * factors * new).sum()).backward()
    optimise(rate, rl["maxGradNorm"])
    return statistics.fmean(rewards)


problems = given["problems"]
measure(problems["heldOut"])
per_job = sft["stepsPerJob"] * sft["batchSize"]
jobs = []
while len(jobs) < sft["maxJobs"] and (not jobs or jobs[-1] < sft["stopAtExact"]):
    start = len(jobs) * per_job
    for at in range(start, start + per_job, sft["batchSize"]):
        supervise(problems["sft"][at : at + sft["batchSize"]])
    jobs.append(measure(problems["validation"]))

steps, points = [], []


def measure_point():
    points.append({"step": len(steps), "exact": measure(problems["heldOut"]), "seconds": time.perf_counter() - started})


measure_point()
while points[-1]["exact"] < given["target"] and len(steps) < given["maxSteps"]:
    before, start = time.perf_counter(), len(steps) * rl["prompts"]
    reward = reinforce(problems["train"][start : start + rl["prompts"]], rl["rates"][len(steps)])
    steps.append({"seconds": time.perf_counter() - before, "reward": reward})
    if len(steps) % given["every"] == 0 or len(steps) == given["maxSteps"]:
        measure_point()
print(json.dumps({"jobs": jobs, "steps": steps, "points": points, "cpuSeconds": time.process_time()}))
