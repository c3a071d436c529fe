"""Plays an environment with the client of openreward 0.1.167 (`pip install openreward==0.1.167`) and prints the results as JSON.

Usage: python ors_client.py URL
"""

import asyncio
import json
import sys

from openreward import AsyncOpenReward
from openreward.api.environments.client import ToolCallError
from openreward.environments.types import Message, TextBlock


async def main(url):
    environments = AsyncOpenReward(api_key="none").environments
    env = environments.get("sums", base_url=url)
    tasks = await env.list_tasks("train")
    async with env.session(tasks[1]) as session:
        prompt = await session.get_prompt()
        messages = await session.get_messages()
        tools = await session.list_tools()
        added = await session.call_tool("add", {"x": 4, "y": 5})
        try:
            await session.call_tool("divide", {})
            failure = None
        except ToolCallError as error:
            failure = str(error)
        scores = await session.score_group([[Message(role="assistant", blocks=[TextBlock(text=text)])] for text in ("9", "It is 9.")])
        ended = await session.call_terminal_tool("It is 9.")
    await environments.aclose()
    print(
        json.dumps(
            {
                "tasks": len(tasks),
                "prompt": prompt[0].text,
                "roles": [message.role for message in messages],
                "tools": [tool.name for tool in tools],
                "added": added.blocks[0].text,
                "failure": failure,
                "scores": [score.reward for score in scores],
                "reward": ended.reward,
                "finished": ended.finished,
            }
        )
    )


asyncio.run(main(sys.argv[1]))
