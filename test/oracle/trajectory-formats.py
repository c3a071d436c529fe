"""Writes trajectories with the packages whose formats `src/library/dataset/formats` reads, and validates the ATIF documents that it writes.

    python test/oracle/trajectory-formats.py

Needs Python 3.12 with harbor 0.25.0, verifiers 0.4.0 and openpipe-art 0.5.23, installed with `--no-deps`, and the packages that their models
import: pydantic 2.12, openai<3, anthropic 0.84, numpy, renderers, httpx, python-dotenv, polars and the dependencies of verifiers. Writes to
`test/oracle/trajectory-formats/`: `harbor.json`, `traces.jsonl`, `art.jsonl`, `expected.json`. Reads `written.json`, the documents that the
test wrote; `expected.json` has them as Harbor's model reads them.
"""

import importlib.metadata
import json
import pathlib
from datetime import UTC, datetime, timedelta

from art.trajectories import Trajectory as ArtTrajectory, TrajectoryExchanges, TrajectoryGroup
from art.trajectories._protocols import build_exchange
from art.trajectories._tokenize import _chat_tokens, _completion_evidence, _messages_tokens, _responses_tokens
from harbor.models.trajectories import Trajectory
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.semantic import ParentLink
from verifiers.v1.state import State
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, Timing, Trace, TraceTask, VersionInfo
from verifiers.v1.types import AssistantMessage, SamplingConfig, SystemMessage, Tool, ToolCall, ToolMessage, UserMessage

PLACE = pathlib.Path(__file__).parent / "trajectory-formats"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

# Harbor: tools, a step without a model, copied context, feedback without a call, and an embedded sub-agent.
harbor = Trajectory.model_validate(
    {
        "session_id": "run-1",
        "agent": {
            "name": "terminus",
            "version": "2.0",
            "model_name": "local/demo",
            "tool_definitions": [{"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": PARAMETERS}}],
        },
        "notes": "made for a test",
        "steps": [
            {"step_id": 1, "timestamp": "2026-11-01T10:00:00Z", "source": "system", "message": "Be brief."},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Weather in "}, {"type": "text", "text": "Rome?"}]},
            {"step_id": 3, "source": "agent", "message": "An earlier answer.", "is_copied_context": True},
            {
                "step_id": 4,
                "source": "agent",
                "message": "",
                "reasoning_content": "Ask the tool.",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "weather", "arguments": {"city": "Rome"}}],
                "observation": {
                    "results": [
                        {"source_call_id": "c1", "content": "sunny", "subagent_trajectory_ref": [{"trajectory_id": "sub"}]},
                        {"content": "One call left.", "subagent_trajectory_ref": [{"trajectory_path": "other.json"}]},
                    ]
                },
                "metrics": {
                    "prompt_tokens": 3,
                    "completion_tokens": 2,
                    "prompt_token_ids": [1, 2, 3],
                    "completion_token_ids": [4, 5],
                    "logprobs": [-0.5, -0.25],
                },
                "llm_call_count": 1,
            },
            {"step_id": 5, "source": "agent", "message": "logged", "llm_call_count": 0},
            {
                "step_id": 6,
                "source": "agent",
                "model_name": "local/other",
                "message": "It is sunny.",
                "metrics": {"prompt_token_ids": [1, 2, 3, 4, 5, 6], "completion_token_ids": [7], "logprobs": [-0.125]},
            },
        ],
        "subagent_trajectories": [
            {
                "trajectory_id": "sub",
                "agent": {"name": "reader", "version": "1"},
                "steps": [
                    {"step_id": 1, "source": "user", "message": "Read."},
                    {"step_id": 2, "source": "agent", "message": "Done.", "metrics": {"completion_token_ids": [9], "logprobs": [-1.0]}},
                ],
            }
        ],
    }
)
(PLACE / "harbor.json").write_text(json.dumps(harbor.to_json_dict(), indent=1) + "\n")


# verifiers: a graph with two branches (a compacted context), weighted rewards, a failed trace and a failed episode.
def node(parent, message, ids, sampled=0, **more):
    mask = [False] * (len(ids) - sampled) + [True] * sampled
    logprobs = [-0.12345678 * (index + 1) for index in range(sampled)]
    return MessageNode(
        parent=parent, message=message, token_ids=ids, mask=mask, logprobs=logprobs, sampled=sampled > 0, timestamp=1.0, **more
    )


def trace(identifier, **members):
    return Trace[WireTaskData, State, WireAgentConfig](
        id=identifier,
        verifiers=VersionInfo(version="0.4.0"),
        task=task,
        agent=AgentInfo[WireAgentConfig](config=WireAgentConfig(), name="solver"),
        timing=Timing(start=1_790_000_000.5),
        **members,
    )


task = TraceTask[WireTaskData](type="WeatherTask", data=WireTaskData(idx=0, prompt="Weather in Rome?"), key="task-7")
call = ToolCall(id="c1", name="weather", arguments='{"city": "Rome"}')
nodes = [
    node(None, SystemMessage(content="Be brief."), [1, 2]),
    node(0, UserMessage(content="Weather in Rome?"), [3, 4, 5]),
    node(1, AssistantMessage(content=None, reasoning_content="Ask.", tool_calls=[call]), [6, 7, 8], sampled=2),
    node(2, ToolMessage(tool_call_id="c1", content="sunny", name="weather"), [9]),
    node(3, AssistantMessage(content="Sunny."), [6, 10, 11], sampled=2),
    node(1, UserMessage(content="Summary: the tool said sunny."), [12, 13], semantic_parents=[ParentLink(node=4, type="compaction")]),
    node(5, AssistantMessage(content="It is sunny."), [6, 14], sampled=1),
    node(2, AssistantMessage(content="A note of the harness."), [15]),
]
good = trace(
    "trace-1",
    tools=[Tool(name="weather", description="Weather.", parameters=PARAMETERS)],
    nodes=nodes,
    calls=[
        ModelCall(node=2, model="m", finish_reason="tool_calls", sampling=SamplingConfig(temperature=0.7)),
        ModelCall(node=6, model="m", finish_reason="stop", sampling=SamplingConfig(temperature=1.0)),
    ],
    rewards={"correct": Reward(score=1.0, weight=0.75), "style": Reward(score=0.5, weight=0.5), "late": None},
    metrics={"turns": 3.0, "unknown": None},
    is_completed=True,
    ok=True,
    stop_condition="agent_completed",
    errors=[Error(type="ProviderError", message="a first attempt failed")],
)
bad = trace("trace-2", nodes=nodes[:2], stop_condition="provider_error", errors=[Error(type="ProviderError", message="status 500", status_code=500)])
run = TrainRunInfo(id="r", work=TrainWorkInfo(step=3, policy=PolicySpan(start=2, end=3)))
common = {"env": EnvInfo(id="weather"), "task": task}
WireEpisode = Episode[WireTaskData, State, WireAgentConfig]
episodes = [
    WireEpisode(id="e1", ok=True, traces=[good], group=GroupInfo(id="g"), run=run, **common),
    WireEpisode(id="e2", ok=False, traces=[bad], group=GroupInfo(id="g"), **common),
    WireEpisode(id="e3", ok=False, errors=[Error(type="EnvError", message="no box", traceback="at run")], group=GroupInfo(id="g"), **common),
]
(PLACE / "traces.jsonl").write_text("".join(json.dumps(each.to_record()) + "\n" for each in episodes))
branches = [
    {"messages": [each.message.content or "" for each in branch.nodes], "token_ids": branch.token_ids, "mask": branch.sampled_mask, "logprobs": branch.logprobs}
    for branch in good.branches
]

# ART: exchanges built from the bytes of requests and responses, as its capture does.
START = datetime(2026, 11, 1, 10, tzinfo=UTC)


def exchange(endpoint, request, response, at):
    body = response.encode() if isinstance(response, str) else json.dumps(response).encode()
    times = {"start_time": START + timedelta(seconds=at), "end_time": START + timedelta(seconds=at + 1)}
    return build_exchange(endpoint, {"model": "m", **request}, body, **times)


def chat(content, prompt, ids, logprobs, calls=None):
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    entries = [{"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []} for token, logprob in zip(ids, logprobs)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": {"content": entries}, "token_ids": ids}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "prompt_token_ids": prompt}


def events(*payloads):
    return "".join(f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n" for payload in payloads)


question = {"role": "user", "content": "Weather in Rome?"}
chat_call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
function = {"name": "weather", "description": "Weather.", "parameters": PARAMETERS}
chat_tools = [{"type": "function", "function": function}]
asked = {"messages": [question], "tools": chat_tools, "temperature": 0.5}
answered = {
    **asked,
    "messages": [
        question,
        {"role": "assistant", "content": None, "tool_calls": [chat_call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
}
message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None}
usage = {"input_tokens": 3, "output_tokens": 2}
stream = events(
    {"type": "message_start", "message": {**message, "usage": usage, "prompt_token_ids": [1, 2, 3]}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"city": "Rome"}'}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 2},
        "token_ids": [4, 5],
        "logprobs": [-0.5, -0.25],
    },
    {"type": "message_stop"},
)
used = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}
claude = {"max_tokens": 64, "system": "Be brief.", "tools": [{"name": "weather", "description": "Weather.", "input_schema": PARAMETERS}]}
result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}
follow_up = [question, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
sunny = {**message, "usage": usage, "content": [{"type": "text", "text": "Sunny."}], "stop_reason": "end_turn"}


def response(identifier, output, prompt, ids, logprobs):
    tokens = [{"token_id": token, "logprob": logprob} for token, logprob in zip(ids, logprobs)]
    generation = {"prompt_token_ids": prompt, "output_indices": list(range(len(output))), "output_tokens": tokens}
    base = {"object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**base, "id": identifier, "status": "completed", "output": output, "token_generations": [generation]}


function_call = {"type": "function_call", "id": "f", "call_id": "r1", "name": "weather", "arguments": '{"city": "Rome"}', "status": "completed"}
text = {"type": "output_text", "text": "Sunny.", "annotations": []}
spoken = {"type": "message", "id": "o", "role": "assistant", "status": "completed", "content": [text]}
responses_tools = [{"type": "function", **function, "strict": False}]
exchanges = {
    "chat_completions": [
        exchange("chat_completions", asked, chat(None, [1, 2, 3], [4, 5], [-0.5, -0.25], [chat_call]), 0),
        exchange("chat_completions", answered, chat("Sunny.", [1, 2, 3, 4, 5, 6], [7], [-0.125]), 2),
    ],
    "messages": [
        exchange("messages", {**claude, "messages": [question], "stream": True}, stream, 0),
        exchange("messages", {**claude, "messages": follow_up}, {**sunny, "prompt_token_ids": [1, 2, 3, 4, 5, 6], "token_ids": [7], "logprobs": [-0.125]}, 2),
    ],
    "responses": [
        exchange(
            "responses",
            {"input": "Weather in Rome?", "instructions": "Be brief.", "tools": responses_tools},
            response("resp_1", [function_call], [1, 2, 3], [4, 5], [-0.5, -0.25]),
            0,
        ),
        exchange(
            "responses",
            {
                "input": [{"type": "function_call_output", "call_id": "r1", "output": "sunny"}],
                "instructions": "Be brief.",
                "tools": responses_tools,
                "previous_response_id": "resp_1",
            },
            response("resp_2", [spoken], [1, 2, 3, 4, 5, 6], [7], [-0.125]),
            2,
        ),
    ],
    "completions": [
        exchange(
            "completions",
            {"prompt": [1, 2, 3], "max_tokens": 2},
            {
                "id": "cmpl",
                "object": "text_completion",
                "created": 1,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "text": "ab",
                        "finish_reason": "length",
                        "token_ids": [4, 5],
                        "prompt_token_ids": [1, 2, 3],
                        "logprobs": {"tokens": ["token_id:4", "token_id:5"], "token_logprobs": [-0.5, -0.25]},
                    }
                ],
            },
            0,
        )
    ],
}
group = TrajectoryGroup(
    [
        ArtTrajectory(exchanges=TrajectoryExchanges(**{name: items}), reward=index, metrics={"turns": len(items)}, metadata={"api": name, "list": [1]})
        for index, (name, items) in enumerate(exchanges.items())
    ],
    exceptions=[],
)
(PLACE / "art.jsonl").write_text(group.model_dump_json() + "\n")
evidence = lambda found: {"prompt_token_ids": found[0], "token_ids": found[1], "logprobs": found[-1]}
readers = {"chat_completions": _chat_tokens, "messages": _messages_tokens, "responses": _responses_tokens, "completions": _completion_evidence}
art = {name: [evidence(readers[name](each.response)) for each in items] for name, items in exchanges.items()}

written = [Trajectory.model_validate(each).to_json_dict() for each in json.loads((PLACE / "written.json").read_text())]
versions = {name: importlib.metadata.version(name) for name in ("harbor", "verifiers", "openpipe-art")}
expected = {"versions": versions, "written": written, "branches": branches, "reward": good.reward, "art": art}
(PLACE / "expected.json").write_text(json.dumps(expected) + "\n")
