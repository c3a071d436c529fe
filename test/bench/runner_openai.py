"""AsyncOpenAI with ART's way of gathering: every rollout of every group is started at once. `runner_openai.py <file with PeerInput as JSON>`.

With openpipe-art installed its own trajectories and gather are used; without it, a plain asyncio.gather that keeps as much: the
messages, the whole choice and the reward of each rollout.
"""

import asyncio
import json
import resource
import sys
import time

import openai

try:
    import art
except Exception:  # Not installed, or one of its many dependencies does not load.
    art = None

GROUP_SIZE = 8
PROMPT = "Task {}: write the words of the following sentence in reverse order. The quick brown fox jumps over the lazy dog."


async def sample(client, scenario, seed):
    messages = [{"role": "user", "content": PROMPT.format(scenario)}]
    completion = await client.chat.completions.create(
        model="team/bench/runner:step0",
        messages=messages,
        logprobs=True,
        temperature=1,
        max_completion_tokens=32,
        seed=seed,
        extra_body={"return_token_ids": True},
    )
    return messages, completion.choices[0]


async def rollout(client, scenario, seed):
    messages, choice = await sample(client, scenario, seed)
    reward = len(choice.message.content) % 2
    if art is None:
        return {"messages_and_choices": [*messages, choice], "reward": reward}
    return art.Trajectory(messages_and_choices=[*messages, choice], reward=reward)


async def gather(client, completions):
    scenarios = range(completions // GROUP_SIZE)
    if art is None:
        groups = await asyncio.gather(
            *(asyncio.gather(*(rollout(client, s, s * GROUP_SIZE + i) for i in range(GROUP_SIZE))) for s in scenarios)
        )
        return sum(len(group) for group in groups)
    groups = await art.gather_trajectory_groups(
        (art.TrajectoryGroup(rollout(client, s, s * GROUP_SIZE + i) for i in range(GROUP_SIZE)) for s in scenarios),
        pbar_desc=None,
    )
    return sum(len(group.trajectories) for group in groups)


async def main(options):
    # The client keeps at most 1,000 connections by itself; the rest waits for one.
    client = openai.AsyncOpenAI(base_url=options["url"] + "/v1", api_key="bench", timeout=600, max_retries=0)
    await gather(client, options["warmUp"])
    cpu = time.process_time()
    started = time.perf_counter()
    count = await gather(client, options["completions"])
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu
    if count != options["completions"]:
        raise SystemExit(f"Expected {options['completions']} trajectories, got {count}")
    by = f"openai {openai.__version__}, " + ("asyncio.gather" if art is None else "ART's gather")
    print(
        json.dumps(
            {
                "completions": count,
                "seconds": seconds,
                "cpuSeconds": cpu_seconds,
                "megabytesPerThousand": None,
                "peakMegabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "by": by,
            }
        )
    )


with open(sys.argv[1], encoding="utf-8") as file:
    asyncio.run(main(json.load(file)))
