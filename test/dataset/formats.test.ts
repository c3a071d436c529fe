/** ATIF written by this package, files of Harbor trials, and invalid documents of each format. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fromAtif, readArtGroups, readAtif, readVerifiersTraces, toAtif, writeAtif } from "../../src/library/dataset/index.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";
import { sampled } from "../trajectory/samples.ts";
import { trajectoryValue } from "./arbitraries.ts";

let directory = "";
beforeAll(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-formats-test-"))));
afterAll(() => rm(directory, { recursive: true }));

async function file(name: string, content: unknown): Promise<string> {
  const path = join(directory, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

/** The parts of a trajectory that matter to training, without the difference between null, empty and absent. */
function essence(trajectory: Trajectory): unknown {
  const { messages_and_choices: items, additional_histories: histories, tools, ...rest } = trajectory.toJSON();
  const lists = [items, ...histories.map((history) => history.messages_and_choices).filter((list) => list.length > 0)];
  return JSON.parse(JSON.stringify({ lists, tools, rest }), (_, value: unknown) => {
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value;
    const isEmpty = (each: unknown) => each === null || (Array.isArray(each) && each.length === 0);
    return Object.fromEntries(Object.entries(value).filter(([key, each]) => !isEmpty(each) && !(key === "content" && each === "")));
  });
}

const step = (members: object) => ({ step_id: 1, source: "user", message: "q", ...members });
const atif = (...steps: object[]) => ({ schema_version: "ATIF-v1.8", agent: { name: "a", version: "1" }, steps });

describe("ATIF", () => {
  test.prop([trajectoryValue.filter(({ messages_and_choices: items }) => items.length > 0)], { numRuns: 300 })(
    "returns a written trajectory with equal messages, token ids, log-probabilities and reward",
    (value) => {
      const trajectory = Trajectory.fromJSON(value);
      const back = fromAtif(JSON.parse(JSON.stringify(toAtif(trajectory))));
      expect(essence(back)).toEqual(essence(trajectory));
      expect(back.reward).toBe(trajectory.reward);
      expect(back.allChoices.map((choice) => [choice.token_ids ?? null, choice.prompt_token_ids ?? null])).toEqual(
        trajectory.allChoices.map((choice) => [choice.token_ids ?? null, choice.prompt_token_ids ?? null]),
      );
      const values = (from: Trajectory) =>
        from.allChoices.map(({ logprobs }) => logprobs?.content?.map(({ token, logprob }) => [token, logprob]));
      expect(values(back)).toEqual(values(trajectory));
    },
  );

  it("is written one document per line, or as one document", async () => {
    const lines = join(directory, "some.jsonl.gz");
    await writeAtif(lines, [sampled(1), sampled(0.5)], { agent: { name: "mine", version: "2", model: "m" } });
    expect((await readAtif(lines).toArray()).map(({ reward }) => reward)).toEqual([1, 0.5]);
    const single = join(directory, "one.json");
    await writeAtif(single, [sampled(0.25)]);
    expect((await readAtif(single).toArray()).map(essence)).toEqual([essence(sampled(0.25))]);
    await expect(writeAtif(single, [sampled(1), sampled(0.5)])).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(/got several/),
    });
    expect(() => toAtif(Trajectory.fromJSON({}))).toThrow(/at least one message/);
  });

  it("takes the reward of a Harbor trial from its verifier", async () => {
    const document = atif(step({}), step({ step_id: 2, source: "agent", message: "a" }));
    const path = await file("trial/agent/trajectory.json", document);
    const read = async (options = {}) => (await readAtif(path, options).toArray()).map(({ reward, metrics }) => ({ reward, metrics }));
    expect(await read()).toEqual([{ reward: 0, metrics: {} }]);
    await file("trial/verifier/reward.txt", "0.5\n");
    expect(await read()).toEqual([{ reward: 0.5, metrics: {} }]);
    const rewards = await file("trial/verifier/reward.json", { speed: 2, tests: 0.75 });
    expect(await read({ rewardName: "tests" })).toEqual([{ reward: 0.75, metrics: { "reward/speed": 2, "reward/tests": 0.75 } }]);
    await expect(read()).rejects.toMatchObject({
      code: "E_DATA",
      message: `${rewards}: expected a reward \`reward\`, got ["speed","tests"]; set \`rewardName\` to one of them`,
    });
    await file("trial/verifier/reward.json", "high");
    await expect(read()).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(/expected a JSON document, got "high"/) });
  });

  it.each([
    [atif(step({ step_id: 2 })), /:2: .*`steps.0.step_id`: expected 1.* received 2/],
    [atif(step({ metrics: {} })), /:2: .*`steps.0.metrics`: expected only in a step of source `agent`, received source `user`/],
    [atif(step({ color: 1 })), /:2: .*`steps.0` has unknown field `color`; allowed: step_id, /],
    [atif(step({ message: 7 })), /:2: .*`steps.0.message`.*7 \(number\)/],
    [
      atif(step({ source: "agent", tool_calls: [{ tool_call_id: "c", function_name: "f", arguments: "{}" }] })),
      /arguments`.*expected record, received string/,
    ],
    [
      atif(step({ observation: { results: [{ source_call_id: "x" }] } })),
      /source_call_id`: expected a `tool_call_id` of the same step, received "x"/,
    ],
    [
      atif(step({ source: "agent", message: [{ type: "image", source: {} }] })),
      /`steps.0.message.0.type`: expected text in a step of an agent, got image/,
    ],
    [{ ...atif(step({})), schema_version: "ATIF-v2.0" }, /`schema_version`: expected ATIF-v1.0 to ATIF-v1.8, got "ATIF-v2.0"/],
    [
      { ...atif(step({})), subagent_trajectories: [atif(step({}))] },
      /`subagent_trajectories.0.trajectory_id`: expected an identifier, received undefined/,
    ],
    [[], /expected an ATIF document; the document: .*expected object, received array/],
  ])("rejects the invalid document %j with line and field", async (document, message) => {
    const path = await file("bad.jsonl", `${JSON.stringify(atif(step({})))}\n${JSON.stringify(document)}\n`);
    await expect(readAtif(path).toArray()).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
  });
});

const node = { message: { role: "assistant", content: "a" }, sampled: true, token_ids: [1, 2], mask: [false, true], logprobs: [-0.5] };
const task = { type: "T", key: "k" };
const episode = (nodes: object[], members = {}) => ({
  id: "e",
  task,
  ok: true,
  traces: [{ version: 1, id: "t", task, agent: { name: "solver" }, nodes, ok: true, ...members }],
});
const exchanges = (members: object) => ({ exchanges: members });
async function first<T>(items: AsyncIterable<T>): Promise<T | undefined> {
  for await (const item of items) return item;
  return undefined;
}
const times = { start_time: "2026-11-01T10:00:00Z", end_time: "2026-11-01T10:00:01Z" };
const claude = { request: { messages: [{ role: "user", content: "q" }] }, ...times };

describe("readers of other formats", () => {
  it.each([
    [readVerifiersTraces, episode([{ ...node, parent: 0 }]), /:1: traces.0.nodes.0.parent: expected the index of an earlier node, got 0/],
    [readVerifiersTraces, episode([{ ...node, logprobs: [] }]), /nodes.0.logprobs: expected one value per sampled token \(1\), got 0/],
    [readVerifiersTraces, episode([{ ...node, mask: [true, false], logprobs: [-1] }]), /mask: expected the sampled tokens at the end/],
    [readVerifiersTraces, episode([{ ...node, mask: [true] }]), /mask: expected one value per token id \(2\), got 1/],
    [readVerifiersTraces, episode([{ message: { role: "robot" } }]), /`traces.0.nodes.0.message.role`.*"robot"/],
    [readVerifiersTraces, episode([], { version: 2 }), /expected `traces.0.version` 1.* got 2/],
    [readArtGroups, { format: "art.trajectories" }, /got its compact form/],
    [readArtGroups, {}, /expected a trajectory of ART/],
    [
      readArtGroups,
      exchanges({ messages: [{ ...claude, response: {} }] }),
      /`messages.0.response.id`: .*expected string, received undefined/,
    ],
    [
      readArtGroups,
      exchanges({ messages: [{ ...claude, response: { id: "m", model: "m", content: [{ type: "server_tool_use" }] } }] }),
      /exchanges.messages.0: `content.0.type`: "server_tool_use" is not supported. Expected text, thinking or tool_use/,
    ],
    [
      readArtGroups,
      exchanges({
        responses: [{ request: { input: "q", previous_response_id: "gone" }, response: { id: "r", model: "m", output: [] }, ...times }],
      }),
      /previous_response_id: expected a response of the same trajectory, got "gone"/,
    ],
    [
      readArtGroups,
      exchanges({ messages: ["a", "b"].map((model) => ({ ...claude, response: { id: "m", model, content: [] } })) }),
      /expected exchanges of one model, got \["a","b"\]; set `model`/,
    ],
  ] as const)("%o rejects %j with line and field", async (read, line, message) => {
    const path = await file("bad-line.jsonl", line);
    await expect(first(read(path))).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
  });
});
