import { describe, expect, it, onTestFinished, vi } from "vitest";
import { buildRlBatch } from "../../src/learner/index.ts";
import { Trajectory, trajectory, type HistoryBuilder, type Policy } from "../../src/base/trajectory/index.ts";
import { completion, group, scriptedPolicy } from "./samples.ts";

const user = { role: "user", content: "q" };

describe("trajectory", () => {
  it("requests token ids and log-probabilities and stores them on the choice", async () => {
    const policy = scriptedPolicy("yes");
    const t = trajectory({ messages: [user], metadata: { task: "a" } });
    const turn = await t.sample(policy, {
      temperature: 1,
      topP: 0.9,
      topK: 5,
      maxCompletionTokens: 7,
      seed: 3,
      stop: ["x"],
      toolChoice: "auto",
    });
    expect(policy.requests[0]).toEqual({
      model: "team/p/n:step3",
      messages: [user],
      logprobs: true,
      return_token_ids: true,
      temperature: 1,
      top_p: 0.9,
      top_k: 5,
      max_completion_tokens: 7,
      seed: 3,
      stop: ["x"],
      tool_choice: "auto",
    });
    expect(turn).toMatchObject({ text: "yes", finishReason: "stop", toolCalls: [] });
    const finished = t.finish({ reward: 0.5, metrics: { solved: true } });
    expect(finished).toMatchObject({
      reward: 0.5,
      initialPolicyVersion: 3,
      finalPolicyVersion: 3,
      metadata: { task: "a" },
      lastText: "yes",
    });
    expect(finished.metrics).toMatchObject({ solved: true, duration: expect.any(Number) as number });
    expect(finished.choices[0]).toMatchObject({ prompt_token_ids: [1, 2], policy_version: 3, token_ids: [121, 101, 115] });
    expect(finished.choices[0]).not.toHaveProperty("temperature");
    expect(Date.parse(finished.startTime ?? "")).not.toBeNaN();
  });

  it("carries turns, tool calls and reasoning into the next request unchanged", async () => {
    const calls = [{ id: "call_1", type: "function" as const, function: { name: "add", arguments: "{}" } }];
    const requests: unknown[] = [];
    const policy: Policy = {
      id: "m:step1",
      step: 1,
      complete: async (request) => {
        requests.push(request.messages);
        const answer = completion("");
        const [choice] = answer.choices;
        return {
          ...answer,
          model: "m:step2",
          choices: [{ ...choice!, message: { role: "assistant", content: null, tool_calls: calls, reasoning: "hm", refusal: null } }],
        };
      },
    };
    const tools = [{ type: "function" as const, function: { name: "add" } }];
    const t = trajectory({ messages: [user], tools });
    const { toolCalls } = await t.sample(policy);
    expect(toolCalls).toEqual(calls);
    t.add({ role: "tool", tool_call_id: "call_1", content: "3" });
    await t.sample(policy);
    expect(requests[1]).toEqual([
      user,
      { role: "assistant", content: null, tool_calls: calls, reasoning: "hm" },
      { role: "tool", tool_call_id: "call_1", content: "3" },
    ]);
    // The response's own step wins over the policy's.
    expect(t.finish({ reward: 0 })).toMatchObject({ finalPolicyVersion: 2, tools });
  });

  it("round-trips through JSON with the keys of other writers", async () => {
    const t = trajectory({ messages: [user] });
    await t.sample(scriptedPolicy("yes"));
    const wire = { ...t.finish({ reward: 1 }).toJSON(), their_key: [1] };
    expect(JSON.parse(JSON.stringify(Trajectory.fromJSON(wire)))).toEqual(JSON.parse(JSON.stringify(wire)));
  });

  it("freezes a finished trajectory, not the caller's messages", () => {
    const message = { role: "user", content: "q" };
    const finished = trajectory({ messages: [message] }).finish({ reward: 1 });
    message.content = "changed";
    expect(finished.messages()).toEqual([user]);
    expect(() => ((finished.metrics as Record<string, number>)["x"] = 1)).toThrow(TypeError);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, undefined as never, "1" as never])(
    "rejects the reward %s and can be finished afterwards",
    (reward) => {
      const t = trajectory({ messages: [user] });
      expect(() => t.finish({ reward })).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "reward" }) as Error);
      expect(t.finish({ reward: 1 }).reward).toBe(1);
    },
  );

  it("rejects metrics that are not finite, invalid messages, and changes after the end", async () => {
    const t = trajectory({ messages: [user] });
    expect(() => t.finish({ reward: 1, metrics: { x: Number.NaN } })).toThrow(/metric `x`/);
    t.metadata["x"] = { deep: 1 } as never;
    expect(() => t.finish({ reward: 1 })).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "metadata.x" }) as Error);
    delete t.metadata["x"];
    expect(() => t.add("hello" as never)).toThrow(/Expected a message/);
    t.finish({ reward: 1 });
    expect(() => t.add(user)).toThrow(/finished/);
    expect(() => t.finish({ reward: 1 })).toThrow(/finished/);
    await expect(t.sample(scriptedPolicy("x"))).rejects.toMatchObject({ code: "E_CONFLICT" });
  });

  it("samples one turn at a time, and appends nothing if sampling fails", async () => {
    const t = trajectory({ messages: [user] });
    const first = t.sample(scriptedPolicy("a"));
    const second = t.sample(scriptedPolicy("b"));
    expect(() => t.finish({ reward: 1 })).toThrow(/still being sampled/);
    await expect(second).rejects.toMatchObject({ code: "E_CONFLICT" });
    await first;
    const reason = new Error("enough");
    await expect(t.sample(scriptedPolicy("c"), { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(t.messages()).toHaveLength(2);
  });

  it("tracks seconds per name, also of a function that throws", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const t = trajectory({ messages: [user] });
    const takes = (ms: number, end: () => unknown) => () => {
      vi.advanceTimersByTime(ms);
      return end();
    };
    await expect(
      t.track(
        "tool",
        takes(1500, () => 5),
      ),
    ).resolves.toBe(5);
    expect(t.metrics["tool_duration"]).toBe(1.5);
    const failing = takes(500, () => Promise.reject(new Error("no")));
    await expect(t.track("tool", failing)).rejects.toThrow("no");
    expect(t.metrics["tool_duration"]).toBe(2);
  });

  it("copies messages and choices, so that later changes have no effect", async () => {
    const answer = completion("yes");
    const message = { role: "user", content: "q" };
    const t = trajectory({ messages: [message] });
    await t.sample({ id: "m:step1", step: 1, complete: async () => answer });
    message.content = "changed";
    answer.choices[0]!.token_ids![0] = 0;
    expect(t.messages()[0]).toEqual(user);
    expect(t.finish({ reward: 1 }).choices[0]?.token_ids).toEqual([121, 101, 115]);
  });

  it("rejects appending and compacting while a turn is sampled", async () => {
    const t = trajectory({ messages: [user] });
    const turn = t.sample(scriptedPolicy("a"));
    expect(() => t.add(user)).toThrow(expect.objectContaining({ code: "E_CONFLICT" }) as Error);
    expect(() => t.compact([user])).toThrow(/before `compact`/);
    await turn;
    expect(t.add(user).messages()).toHaveLength(3);
  });

  it("is deeply frozen, also from frozen parts", async () => {
    const t = trajectory({ messages: [user] });
    await t.sample(scriptedPolicy("yes"));
    const { choices } = t.finish({ reward: 1, metrics: { a: 1 } });
    expect(() => choices[0]!.logprobs!.content!.pop()).toThrow(TypeError);
    expect(() => (choices[0]!.token_ids![0] = 5)).toThrow(TypeError);
    const half = Object.freeze({ ...t.messages()[0], role: "user", content: [{ type: "text", text: "a" }] });
    const read = Trajectory.fromWire(Object.freeze({ ...Trajectory.fromJSON({}).toJSON(), messages_and_choices: [half] }));
    expect(() => (half.content[0]!.text = "b")).toThrow(TypeError);
    expect(read.lastText).toBe("a");
  });
});

describe("additional histories", () => {
  const system = (content: string) => ({ role: "system", content });
  const versioned = (text: string, step: number): Policy => ({
    id: `m:step${step}`,
    step,
    complete: async () => completion(text, `m:step${step}`),
  });

  it("contain sub-agents in the order of their start, not of their turns", async () => {
    const tools = [{ type: "function" as const, function: { name: "add" } }];
    const t = trajectory({ messages: [user] });
    const first = t.history({ messages: [system("one")], tools });
    const second = t.history({ messages: [system("two")] });
    const inner = first.history({ messages: [system("one.one")] });
    await Promise.all([second.sample(versioned("b", 4)), inner.sample(versioned("c", 6))]);
    await Promise.all([t.sample(versioned("main", 5)), first.sample(versioned("a", 5))]);
    const finished = t.finish({ reward: 1 });
    expect(finished.additionalHistories.map(({ messagesAndChoices: [start] }) => start)).toEqual([
      system("one"),
      system("one.one"),
      system("two"),
    ]);
    expect(finished.additionalHistories[0]?.tools).toEqual(tools);
    expect(finished.toJSON().additional_histories[1]).toMatchObject({ tools: null });
    expect(finished.choices).toHaveLength(1);
    expect(finished.allChoices.map(({ message }) => message.content)).toEqual(["main", "a", "c", "b"]);
    // Smallest of all; the last in time is `first`'s.
    expect(finished).toMatchObject({ initialPolicyVersion: 4, finalPolicyVersion: 5 });
    expect(Trajectory.fromJSON(JSON.parse(JSON.stringify(finished)))).toMatchObject({ additionalHistories: finished.additionalHistories });
  });

  it("contain the compacted parts before the branches; the main conversation continues", async () => {
    const policy = scriptedPolicy("one", "two", "sub", "three");
    const t = trajectory({ messages: [user] });
    await t.sample(policy);
    t.compact([system("so far: one")]);
    await t.sample(policy);
    const branch = t.history({ messages: [system("branch")] });
    await branch.sample(policy);
    branch.compact([system("branch, short")]);
    t.compact([system("so far: one, two")]);
    await t.sample(policy);
    expect(policy.requests[3]?.messages).toEqual([system("so far: one, two")]);
    const finished = t.finish({ reward: 1 });
    expect(finished.lastText).toBe("three");
    expect(finished.additionalHistories.map(({ messagesAndChoices: [start] }) => start)).toEqual([
      user,
      system("so far: one"),
      system("branch"),
      system("branch, short"),
    ]);
    expect(finished.allChoices.map(({ message }) => message.content)).toEqual(["three", "one", "two", "sub"]);
  });

  it("are trained with the trajectory as separate sequences", async () => {
    const play = async (reward: number) => {
      const t = trajectory({ messages: [user] });
      await t.sample(scriptedPolicy("abc"));
      await t.history({ messages: [user] }).sample(scriptedPolicy("de"));
      t.compact([user]);
      await t.sample(scriptedPolicy("f"));
      return t.finish({ reward });
    };
    const batch = group(await play(0), await play(1)).toJSON();
    const { rows, metrics } = buildRlBatch([batch], null, { contextLength: 64 });
    expect(rows.map(({ tokens }) => tokens.length)).toEqual([3, 5, 4, 3, 5, 4]);
    expect(metrics["tokens/trained"]).toBe(12);
  });

  it("share logs and metrics with their trajectory and end with it", async () => {
    const t = trajectory({ messages: [user] });
    const branch = t.history({ messages: [user] });
    await branch.track("tool", () => 1);
    branch.log("found");
    const turn = branch.sample(scriptedPolicy("a"));
    expect(() => t.finish({ reward: 1 })).toThrow(/still being sampled/);
    await turn;
    const finished = t.finish({ reward: 1 });
    expect(finished.logs).toEqual(["found"]);
    expect(finished.metrics).toHaveProperty("tool_duration");
    expect(() => branch.add(user)).toThrow(/finished/);
    expect(() => branch.history({ messages: [] })).toThrow(/finished/);
    expect(() => branch.log("late")).toThrow(/finished/);
  });

  it("reject a choice of another history without changes", async () => {
    const t = trajectory({ messages: [user] });
    const { choice } = await t.sample(scriptedPolicy("a"));
    for (const attempt of [
      () => t.compact([choice as never]),
      () => t.history({ messages: [choice as never] }),
      () => t.compact([{} as never]),
      () => t.compact("summary" as never),
    ]) {
      expect(attempt).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "messages" }) as Error);
    }
    expect(t.messages()).toHaveLength(2);
    expect(t.finish({ reward: 1 }).additionalHistories).toEqual([]);
  });
});

describe("seeds", () => {
  // Python: int.from_bytes(hashlib.sha256(b"turn:7::1").digest()[:6], "big"), and so on.
  const SEEDS = {
    first: 7,
    second: 223453649280663,
    third: 72436592297108,
    branch: 124610021734884,
    branchSecond: 25588797348230,
    inner: 165053164488353,
  };

  it("differ between turns and histories, not between runs", async () => {
    const policy = scriptedPolicy("a");
    const t = trajectory({ messages: [user] });
    const branch = t.history({ messages: [user] });
    const inner = branch.history({ messages: [user] });
    const seeds = async (builder: HistoryBuilder) => {
      await builder.sample(policy, { seed: 7 });
      return policy.requests.at(-1)?.seed;
    };
    expect(await seeds(branch)).toBe(SEEDS.branch);
    expect(await seeds(t)).toBe(SEEDS.first);
    expect(await seeds(inner)).toBe(SEEDS.inner);
    t.compact([user]);
    expect(await seeds(t)).toBe(SEEDS.second);
    expect(await seeds(branch)).toBe(SEEDS.branchSecond);
    expect(await seeds(t)).toBe(SEEDS.third);
    await t.sample(policy, { seed: 7n });
    await t.sample(policy);
    expect(policy.requests.at(-1)).not.toHaveProperty("seed");
  });

  it("are the same when a turn is retried", async () => {
    const seen: unknown[] = [];
    const t = trajectory({ messages: [user] });
    const flaky: Policy = {
      id: "m",
      step: null,
      complete: async ({ seed }) => {
        seen.push(seed);
        if (seen.length === 2) throw new Error("busy");
        return completion("a");
      },
    };
    await t.sample(flaky, { seed: 7 });
    await expect(t.sample(flaky, { seed: 7 })).rejects.toThrow("busy");
    await t.sample(flaky, { seed: 7 });
    expect(seen).toEqual([SEEDS.first, SEEDS.second, SEEDS.second]);
  });
});

describe("with", () => {
  it("returns a changed copy and leaves the original", async () => {
    const t = trajectory({ messages: [user], metadata: { task: "a", old: 1 } });
    await t.sample(scriptedPolicy("yes"));
    t.log("one");
    const finished = t.finish({ reward: 0, metrics: { solved: false, old: 2 } });
    const wire = JSON.stringify(finished);
    const copy = finished.with({
      reward: 0.5,
      metrics: { solved: true, judged: 1, old: undefined },
      metadata: { judge: "b", old: undefined },
      logs: ["two"],
    });
    expect(copy).toMatchObject({ reward: 0.5, logs: ["one", "two"], initialPolicyVersion: 3 });
    expect(copy.metrics).toEqual({ solved: true, judged: 1, duration: finished.metrics["duration"] });
    expect(copy.metadata).toEqual({ task: "a", judge: "b" });
    expect(copy.choices[0]).toBe(finished.choices[0]);
    expect(JSON.stringify(finished)).toBe(wire);
    expect(() => ((copy.metadata as Record<string, unknown>)["x"] = 1)).toThrow(TypeError);
  });

  it("rejects values that are not finite and unknown fields", () => {
    const finished = trajectory({ messages: [user] }).finish({ reward: 0 });
    expect(() => finished.with({ reward: Number.NaN })).toThrow(expect.objectContaining({ param: "reward" }) as Error);
    expect(() => finished.with({ metrics: { a: Number.NaN } })).toThrow(expect.objectContaining({ param: "metrics.a" }) as Error);
    expect(() => finished.with({ metadata: { a: [] as never } })).toThrow(expect.objectContaining({ param: "metadata.a" }) as Error);
    expect(() => finished.with({ messages: [] } as never)).toThrow(expect.objectContaining({ param: "messages" }) as Error);
  });
});
