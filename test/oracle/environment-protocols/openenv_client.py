"""Plays an environment with the client of openenv-core 0.3.0 (`pip install openenv-core==0.3.0`) and prints the results as JSON.

Usage: python openenv_client.py URL
"""

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient


async def main(url):
    async with GenericEnvClient(base_url=url) as env:
        first = await env.reset(split="eval", index=0)
        tools = await env.step({"type": "list_tools"})
        added = await env.step({"type": "call_tool", "tool_name": "add", "arguments": {"x": 6, "y": 7}})
        unknown = await env.step({"type": "call_tool", "tool_name": "divide", "arguments": {}})
        ended = await env.step({"type": "call_tool", "tool_name": "submit", "arguments": {"answer": "13"}})
        state = await env.state()
        try:
            await env.step({"type": "dance"})
            failure = None
        except RuntimeError as error:
            failure = str(error)
    print(
        json.dumps(
            {
                "prompt": first.observation["messages"][0]["content"],
                "tools": [tool["name"] for tool in tools.observation["tools"]],
                "added": added.observation["result"]["data"],
                "unknown": unknown.observation["error"]["error_type"],
                "reward": ended.reward,
                "done": ended.done,
                "steps": state["step_count"],
                "failure": failure,
            }
        )
    )


asyncio.run(main(sys.argv[1]))
