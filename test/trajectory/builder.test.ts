import { describe, expect, it } from "vitest";
import { Trajectory, trajectory, type Policy } from "../../src/trajectory/index.ts";
import { completion, scriptedPolicy } from "./samples.ts";

const user = { role: "user", content: "q" };

describe("trajectory", () => {
  it("asks for what training needs and keeps it on the choice", async () => {
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

  it("round-trips through JSON, keys of other writers included", async () => {
    const t = trajectory({ messages: [user] });
    await t.sample(scriptedPolicy("yes"));
    const wire = { ...t.finish({ reward: 1 }).toJSON(), their_key: [1] };
    expect(JSON.parse(JSON.stringify(Trajectory.fromJSON(wire)))).toEqual(JSON.parse(JSON.stringify(wire)));
  });

  it("a finished trajectory is frozen, the caller's messages are not", () => {
    const message = { role: "user", content: "q" };
    const finished = trajectory({ messages: [message] }).finish({ reward: 1 });
    message.content = "changed";
    expect(finished.messages()).toEqual([user]);
    expect(() => ((finished.metrics as Record<string, number>)["x"] = 1)).toThrow(TypeError);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, undefined as never, "1" as never])(
    "refuses the reward %s and can still be finished",
    (reward) => {
      const t = trajectory({ messages: [user] });
      expect(() => t.finish({ reward })).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "reward" }) as Error);
      expect(t.finish({ reward: 1 }).reward).toBe(1);
    },
  );

  it("refuses a metric that is not finite, a message that is none, and work after the end", async () => {
    const t = trajectory({ messages: [user] });
    expect(() => t.finish({ reward: 1, metrics: { x: Number.NaN } })).toThrow(/metric `x`/);
    expect(() => t.add("hello" as never)).toThrow(/Expected a message/);
    t.finish({ reward: 1 });
    expect(() => t.add(user)).toThrow(/finished/);
    expect(() => t.finish({ reward: 1 })).toThrow(/finished/);
    await expect(t.sample(scriptedPolicy("x"))).rejects.toMatchObject({ code: "E_CONFLICT" });
  });

  it("samples one turn at a time and appends nothing when the policy fails", async () => {
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

  it("tracks seconds per name, also of what throws", async () => {
    const t = trajectory({ messages: [user] });
    await expect(t.track("tool", () => 5)).resolves.toBe(5);
    const once = t.metrics["tool_duration"];
    await expect(t.track("tool", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(once).toEqual(expect.any(Number));
    expect(t.metrics["tool_duration"]).toBeGreaterThanOrEqual(once as number);
  });
});
