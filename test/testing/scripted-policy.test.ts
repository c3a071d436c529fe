import { describe, expect, it } from "vitest";
import { preflight, trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";

const start = () => trajectory({ messages: [{ role: "user", content: "1 + 2?" }] });

describe("createScriptedPolicy", () => {
  it("gives the turns in order, records the requests, and rejects a request after the last turn", async () => {
    const policy = createScriptedPolicy([{ calls: [["add", "{}"]] }, { text: "3", isTruncated: true }]);
    const t = start();
    await t.sample(policy, { temperature: 0.5 });
    t.add({ role: "tool", tool_call_id: "call-1-0", content: "3" });
    await t.sample(policy);
    await expect(t.sample(policy)).rejects.toMatchObject({ code: "E_ARGUMENT" });
    expect(policy.requests.map(({ messages }) => messages.length)).toEqual([1, 3, 4]);
    expect(policy.requests[0]).toMatchObject({ temperature: 0.5 });
    const { choices } = t.finish({ reward: 1 });
    expect(choices.map((choice) => choice.finish_reason)).toEqual(["tool_calls", "length"]);
    expect(choices[0]?.message.tool_calls).toMatchObject([{ id: "call-1-0", function: { name: "add", arguments: "{}" } }]);
  });

  it("answers from the request with a function, under the step in its name", async () => {
    const policy = createScriptedPolicy(({ messages }, index) => ({ text: `${String(messages[0]?.content)} ${index}` }), {
      id: "team/demo/sums:step4",
    });
    expect(policy.step).toBe(4);
    const t = start();
    await t.sample(policy);
    await t.sample(policy);
    expect(t.lastText).toBe("1 + 2? 1");
    expect(t.finish({ reward: 1 }).choices[0]).toMatchObject({ policy_version: 4 });
  });

  it("makes trajectories that can be trained", async () => {
    const finished = [0, 1].map(async (reward) => {
      const t = start();
      await t.sample(createScriptedPolicy([{ text: "3" }]));
      return t.finish({ reward });
    });
    const findings = preflight([new TrajectoryGroup({ trajectories: await Promise.all(finished) })]);
    expect(findings.filter(({ severity }) => severity === "fatal")).toEqual([]);
  });
});
