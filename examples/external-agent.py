"""Agent of external-agent.ts: reverses a word, and scores itself. Uses the standard library alone.

Reads one task per line: the word, the base URL for the model, and the URL and key of the session.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from urllib.request import Request, urlopen


def post(url, key, body):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as response:
        return json.load(response)


def play(task):
    messages = [{"role": "user", "content": f"Reverse: {task['word']}"}]
    answer = post(f"{task['baseUrl']}/chat/completions", task["key"], {"model": "policy", "messages": messages})
    text = (answer["choices"][0]["message"]["content"] or "").strip()
    reward = SequenceMatcher(None, text, task["word"][::-1]).ratio()
    post(f"{task['sessionUrl']}/finish", task["key"], {"reward": reward})


with ThreadPoolExecutor(64) as pool:
    for line in sys.stdin:
        pool.submit(play, json.loads(line)).add_done_callback(lambda done: done.result())
