"""Writes the expected values of `smollm2.test.ts`: SmolLM2-135M-Instruct in Hugging Face transformers.

    python test/real/smollm2.py <directory with hf/>

Needs torch and transformers; the test does not. Writes `smollm2.json.gz`: log-probabilities of 50 texts computed in float64, because those
of transformers in float32 differ from them by up to 1.9e-4, and greedy answers in float32 of at most 48
tokens to 100 prompts with the margin of each token, the difference of the two highest log-probabilities.
"""

import gzip
import json
import pathlib
import re
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

root = pathlib.Path(__file__).parents[2]
directory = pathlib.Path(sys.argv[1]) / "hf"
tokenizer = AutoTokenizer.from_pretrained(directory)
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
exact = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()

paragraphs = [
    paragraph
    for page in sorted((root / "docs" / "explanation").glob("*.md"))
    for paragraph in re.split(r"\n\s*\n", page.read_text())
    if 150 < len(paragraph) < 500
]
TEXTS = paragraphs[:: len(paragraphs) // 38][:38] + [
    "Der schnelle braune Fuchs springt über den faulen Hund, während es draußen regnet.",
    "Le petit prince demanda: « S'il vous plaît... dessine-moi un mouton! »",
    "El cielo está despejado y las temperaturas subirán hasta los 31,5 grados.",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "Москва — столица России, а Париж — столица Франции.",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
    '{"name": "whetstone", "versions": [1, 2, 3], "nested": {"a": null, "b": true, "c": -1.5e-7}}',
    "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name ORDER BY 2 DESC;",
    "Once upon a time, in a small village at the edge of a forest, there lived a clockmaker named Ada.",
    "The derivative of x^3 is 3x^2; the integral from 0 to 2 is therefore 2^4 / 4 = 4.",
    "😀 Emoji, tabs\tand   many    spaces\n\n\nand empty lines.",
    "1234567890 0.1 1e10 0xDEADBEEF 192.168.0.1 2026-11-23T22:11:37Z",
]
COUNTRIES = ["France", "Japan", "Brazil", "Egypt", "Canada", "Kenya", "Norway", "India", "Peru", "Poland"]
TOPICS = ["the sea", "winter", "a robot", "bread", "music", "the moon", "friendship", "a library", "trains", "mathematics"]
WORDS = ["house", "water", "happy", "to run", "book", "green", "tomorrow", "teacher", "apple", "mountain"]
PROMPTS = (
    [f"What is the capital of {country}?" for country in COUNTRIES]
    + [f"Name three facts about {country}." for country in COUNTRIES]
    + [f"Write a haiku about {topic}." for topic in TOPICS]
    + [f"Explain {topic} to a child in one sentence." for topic in TOPICS]
    + [f"Translate the word '{word}' into French." for word in WORDS]
    + [f"Use the word '{word}' in a sentence." for word in WORDS]
    + [f"What is {7 * n + 5} plus {13 * n - 4}?" for n in range(1, 11)]
    + [f"List {n + 2} synonyms of '{word}'." for n, word in enumerate(WORDS)]
    + [f"Write a Python function that returns the {name}." for name in
       ["sum of a list", "factorial of n", "longest word", "number of vowels", "reverse of a string", "maximum", "median", "n-th prime", "mean", "last item"]]
    + [f"Give me a short title for a story about {topic}." for topic in TOPICS]
)
assert len(TEXTS) == 50 and len(PROMPTS) == 100


@torch.inference_mode()
def logprobs(ids):
    logits = exact(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


@torch.inference_mode()
def greedy(prompt):
    message = [{"role": "user", "content": prompt}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
    tokens, margins, past, given = [], [], None, ids
    for _ in range(48):
        out = model(given, past_key_values=past, use_cache=True)
        (first, second), (token, _) = torch.log_softmax(out.logits[0, -1].double(), -1).topk(2)
        tokens.append(int(token))
        margins.append(round(float(first - second), 6))
        if tokens[-1] == tokenizer.eos_token_id:
            break
        past, given = out.past_key_values, torch.tensor([[tokens[-1]]])
    return {"prompt": prompt, "prompt_ids": ids[0].tolist(), "tokens": tokens, "margins": margins}


texts = [{"text": text, "ids": (ids := tokenizer(text, add_special_tokens=False)["input_ids"]), "logprobs": [round(x, 7) for x in logprobs(ids)]} for text in TEXTS]
content = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "texts": texts, "answers": [greedy(p) for p in PROMPTS]}
path = pathlib.Path(__file__).with_name("smollm2.json.gz")
path.write_bytes(gzip.compress(json.dumps(content, ensure_ascii=False).encode(), 9, mtime=0))
