"""Records HTTP exchanges with the server of openreward 0.1.167 (`pip install openreward==0.1.167`) in ors.json.

Usage: python ors_record.py
"""

import json
import urllib.error
import urllib.request
from importlib.metadata import version

from recording import HERE, running

PORT = 8918
TRANSCRIPT = [{"role": "user", "blocks": [{"type": "text", "text": "What is 2 + 3?"}]}]


def candidate(text):
    return {"messages": [*TRANSCRIPT, {"role": "assistant", "blocks": [{"type": "text", "text": text}]}]}


REQUESTS = [
    ("GET", "/list_environments", None),
    ("GET", "/sums/splits", None),
    ("GET", "/sums/tools", None),
    ("POST", "/sums/num_tasks", {"split": "train"}),
    ("POST", "/sums/num_tasks", {"split": "held-out"}),
    ("POST", "/sums/tasks", {"split": "train"}),
    ("POST", "/sums/task", {"split": "train", "index": 1}),
    ("POST", "/sums/task", {"split": "train", "index": 2}),
    ("POST", "/sums/task_range", {"split": "train", "start": 0, "stop": 1}),
    ("POST", "/sums/tasks", {"split": "held-out"}),
    ("POST", "/sums/tasks", {"split": "nothing"}),
    ("POST", "/create_session", {}),
    ("POST", "/create", {"env_name": "sums", "split": "train", "index": 0}),
    ("GET", "/sums/prompt", None),
    ("GET", "/sums/messages", None),
    ("GET", "/sums/task_tools", None),
    ("POST", "/ping", {}),
    ("POST", "/sums/call", {"name": "add", "input": {"a": 2, "b": 3}}),
    ("POST", "/sums/call", {"name": "add", "input": {"a": "two"}}),
    ("POST", "/sums/call", {"name": "divide", "input": {}}),
    ("POST", "/sums/call", {"name": "fail", "input": {}}),
    ("POST", "/sums/score_group", {"candidates": [candidate("5"), candidate("It is 5.")]}),
    ("POST", "/sums/call", {"name": "answer", "input": {"text": "It is 5."}}),
    ("POST", "/sums/call", {"name": "add", "input": {"a": 2, "b": 4}}),
    ("POST", "/delete", {}),
    ("POST", "/delete_session", {}),
    ("GET", "/sums/prompt", None),
]


def record():
    exchanges, session = [], None
    for method, path, body in REQUESTS:
        headers = {"content-type": "application/json", **({} if session is None else {"x-session-id": session})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as response:
                status, kind, text = response.status, response.headers["content-type"], response.read().decode()
        except urllib.error.HTTPError as error:
            status, kind, text = error.code, error.headers["content-type"], error.read().decode()
        if path == "/create_session":
            session = text.split("data: ")[1].split()[0]
        exchange = {"method": method, "path": path, "body": body, "status": status, "type": kind, "text": text}
        exchanges.append({**exchange, "text": text.replace(session, "SESSION") if session else text})
    return exchanges


def main():
    with running("ors_server.py", PORT):
        document = {"package": f"openreward {version('openreward')}", "exchanges": record()}
    (HERE / "ors.json").write_text(json.dumps(document, indent=2) + "\n")


main()
