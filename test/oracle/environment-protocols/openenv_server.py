"""Counter environment on the server of openenv-core 0.3.0 (`pip install openenv-core==0.3.0`), for openenv_record.py.

Usage: python openenv_server.py PORT
"""

import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Counter(MCPEnvironment):
    """Counts to 3: `add` adds to the count, a step that reaches 3 has reward 1 and ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("counter")

        @mcp.tool
        def add(amount: int) -> int:
            """Adds to the count."""
            if amount < 0:
                raise ValueError("amount must not be negative")
            self.count += amount
            return self.count

        super().__init__(mcp)
        self.count = 0
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.count = seed or 0
        self._state = State(episode_id=episode_id, step_count=0)
        return Observation(done=False, reward=None, metadata={"task": "Count to 3."})

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise ValueError("only tool calls are supported")

    def _scored(self, observation):
        self._state.step_count += 1
        if isinstance(observation, CallToolObservation):
            observation.done = self.count >= 3
            observation.reward = 1.0 if observation.done else 0.0
        return observation

    def step(self, action, timeout_s=None, **kwargs):
        return self._scored(super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self._scored(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_app(Counter, CallToolAction, CallToolObservation, env_name="counter", max_concurrent_envs=1)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
