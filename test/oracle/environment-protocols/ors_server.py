"""Sums environment on the server of openreward 0.1.167 (`pip install openreward==0.1.167`), for ors_record.py.

Usage: python ors_server.py PORT
"""

import sys

from openreward.environments import Environment, Server, terminal, tool
from openreward.environments.types import GroupScore, JSONObject, Split, TextBlock, ToolOutput
from pydantic import BaseModel


class AddInput(BaseModel):
    a: int
    b: int


class AnswerInput(BaseModel):
    text: str


class Sums(Environment):
    """Adds two numbers with a tool; the answer is graded from the assistant's last message."""

    @classmethod
    def list_splits(cls):
        return [Split(name="train", type="train"), Split(name="held-out", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"id": "2+3", "a": 2, "b": 3}, {"id": "4+5", "a": 4, "b": 5}] if split == "train" else [{"id": "6+7", "a": 6, "b": 7}]

    def get_prompt(self):
        return [TextBlock(text=f"What is {self.task_spec['a']} + {self.task_spec['b']}?")]

    @tool
    def add(self, params: AddInput) -> ToolOutput:
        """Adds two numbers."""
        return ToolOutput(blocks=[TextBlock(text=str(params.a + params.b))], reward=0.25, finished=False)

    @tool
    def fail(self) -> ToolOutput:
        """Fails."""
        raise RuntimeError("the calculator is broken")

    @tool
    def surrender(self) -> ToolOutput:
        """Ends the episode without an answer."""
        return ToolOutput(blocks=[TextBlock(text="ended")], reward=0.0, finished=True)

    @terminal
    @tool
    def answer(self, params: AnswerInput) -> ToolOutput:
        """Grades the answer."""
        right = str(self.task_spec["a"] + self.task_spec["b"]) in params.text
        return ToolOutput(blocks=[TextBlock(text="graded")], reward=1.0 if right else 0.0, finished=True)

    async def score_group(self, candidates):
        return [GroupScore(reward=float(len(c.messages[-1].blocks[0].text)), metadata={"judge": "length"}) for c in candidates]


if __name__ == "__main__":
    Server([Sums]).run(host="127.0.0.1", port=int(sys.argv[1]))
