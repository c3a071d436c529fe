"""Agent of external-agent.ts: the task reverse-text of verifiers, with its prompt and its reward. Uses the standard library alone.

Reads one task per line: the text to reverse, the base URL for the model, and the URL and key of the session.
"""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from urllib.request import Request, urlopen

SYSTEM = "Reverse the text character-by-character. Put your answer in `<reversed_text>` tags."


def post(url, key, body):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as response:
        return json.load(response)


def similarity(answer, text):
    """Similarity of the last tagged text and the reversed text, 0 to 1; 0 without tags."""
    tagged = re.findall(r"<reversed_text>(.*?)</reversed_text>", answer, re.DOTALL)
    return SequenceMatcher(None, tagged[-1].strip(), text[::-1]).ratio() if tagged else 0


def play(task):
    text = task["text"]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    answer = post(f"{task['baseUrl']}/chat/completions", task["key"], {"model": "policy", "messages": messages})
    reward = similarity(answer["choices"][0]["message"]["content"] or "", text)
    post(f"{task['sessionUrl']}/finish", task["key"], {"reward": reward})


with ThreadPoolExecutor(64) as pool:
    for line in sys.stdin:
        pool.submit(play, json.loads(line)).add_done_callback(lambda done: done.result())
