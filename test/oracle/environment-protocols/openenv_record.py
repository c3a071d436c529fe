"""Records WebSocket frames of the server of openenv-core 0.3.0 (`pip install openenv-core==0.3.0`) in openenv.json.

Usage: python openenv_record.py
"""

import asyncio
import json
from importlib.metadata import version

from recording import HERE, running
from websockets.asyncio.client import connect

PORT = 8917
REQUESTS = [
    {"type": "reset", "data": {"seed": 0, "episode_id": "e1"}},
    {"type": "step", "data": {"type": "list_tools"}},
    {"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": {"amount": 2}}},
    {"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": {"amount": -1}}},
    {"type": "step", "data": {"type": "call_tool", "tool_name": "subtract", "arguments": {}}},
    {"type": "state"},
    {"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": {"amount": 1}}},
    {"type": "step", "data": {"type": "call_tool"}},
    {"type": "dance"},
    "not JSON",
]


async def record():
    exchanges = []
    async with connect(f"ws://127.0.0.1:{PORT}/ws") as session:
        for request in REQUESTS:
            await session.send(request if isinstance(request, str) else json.dumps(request))
            exchanges.append({"request": request, "response": json.loads(await session.recv())})
        async with connect(f"ws://127.0.0.1:{PORT}/ws") as second:
            exchanges.append({"request": None, "response": json.loads(await second.recv())})
        await session.send(json.dumps({"type": "close"}))
    return exchanges


def main():
    with running("openenv_server.py", PORT):
        document = {"package": f"openenv-core {version('openenv-core')}", "exchanges": asyncio.run(record())}
    (HERE / "openenv.json").write_text(json.dumps(document, indent=2) + "\n")


main()
