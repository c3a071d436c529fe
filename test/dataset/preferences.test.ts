import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import {
  preferencePairs,
  readExamples,
  readPreferences,
  uploadPreferences,
  writePreferences,
  type PreferencePair,
  type PreferencePairsOptions,
} from "../../src/library/dataset/index.ts";
import { connect } from "../../src/index.ts";
import { Trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { startTestService, temporaryDirectory } from "../service/support.ts";
import { sampled } from "../trajectory/samples.ts";

const user = (content: string) => ({ role: "user", content });
const assistant = (content: string, more: object = {}) => ({ role: "assistant", content, ...more });
const call = (id: string, args: string) =>
  assistant("", { content: null, tool_calls: [{ id, type: "function", function: { name: "f", arguments: args } }] });
const result = (id: string, content: string) => ({ role: "tool", tool_call_id: id, content });

/** A trajectory of plain messages, of which every assistant message is trained. */
function plain(reward: number, messages: readonly object[], more: object = {}): Trajectory {
  return Trajectory.fromJSON({ messages_and_choices: [user("q"), ...messages], reward, ...more } as object);
}

const groupOf = (...trajectories: readonly Trajectory[]) => new TrajectoryGroup({ trajectories });

async function pairsOf(groups: readonly TrajectoryGroup[], options?: PreferencePairsOptions): Promise<PreferencePair[]> {
  return collected(preferencePairs(groups, options));
}

async function collected(pairs: AsyncIterable<PreferencePair>): Promise<PreferencePair[]> {
  const all: PreferencePair[] = [];
  for await (const pair of pairs) all.push(pair);
  return all;
}

const texts = (pairs: readonly PreferencePair[]) => pairs.map(({ chosen, rejected }) => [chosen[0]?.content, rejected[0]?.content]);

describe("preferencePairs", () => {
  const graded = [0.5, 1, 0, 0.5].map((reward, index) => plain(reward, [assistant(`${index}: ${reward}`)]));

  it("pairs the best with the worst trajectory of each group", async () => {
    const [pair] = await pairsOf([groupOf(...graded)]);
    expect(pair).toMatchObject({ prompt: [user("q")], chosen: [assistant("1: 1")], rejected: [assistant("2: 0")] });
    expect(await pairsOf([groupOf(...graded), groupOf(...graded)])).toHaveLength(2);
  });

  it("pairs the largest differences first, up to the number per group, and only from the margin on", async () => {
    const all = [
      ["1: 1", "2: 0"],
      ["0: 0.5", "2: 0"],
      ["1: 1", "0: 0.5"],
      ["1: 1", "3: 0.5"],
      ["3: 0.5", "2: 0"],
    ];
    expect(texts(await pairsOf([groupOf(...graded)], { pairsPerGroup: Infinity }))).toEqual(all);
    expect(texts(await pairsOf([groupOf(...graded)], { pairsPerGroup: 3 }))).toEqual(all.slice(0, 3));
    expect(texts(await pairsOf([groupOf(...graded)], { pairsPerGroup: Infinity, minMargin: 0.6 }))).toEqual(all.slice(0, 1));
  });

  it("makes no pair of equal rewards, of equal conversations, or of a group of one", async () => {
    const same = [plain(1, [assistant("a")]), plain(0, [assistant("a")])];
    expect(await pairsOf([groupOf(sampled(1), sampled(1)), groupOf(...same), groupOf(sampled(1))])).toEqual([]);
  });

  test.prop([fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 6 }), fc.integer({ min: 0, max: 3 })])(
    "prefers the higher reward in every pair, and finds every pair above the margin",
    async (rewards, minMargin) => {
      const group = groupOf(...rewards.map((reward, index) => plain(reward, [assistant(`${reward}/${index}`)])));
      const found = texts(await pairsOf([group], { minMargin, pairsPerGroup: Infinity }));
      const rewardOf = (text: unknown) => Number(String(text).split("/")[0]);
      for (const [chosen, rejected] of found) expect(rewardOf(chosen) - rewardOf(rejected)).toBeGreaterThanOrEqual(Math.max(minMargin, 1));
      const expected = rewards.flatMap((a) => rewards.filter((b) => a - b >= Math.max(minMargin, 1)));
      expect(found).toHaveLength(expected.length);
    },
  );

  it("takes the common beginning of several turns as prompt, without regard to the ids of tool calls", async () => {
    const better = plain(1, [call("a1", "{}"), result("a1", "42"), assistant("right"), user("thanks")]);
    const worse = plain(0, [call("b1", "{}"), result("b1", "42"), assistant("wrong"), user("more"), assistant("end")]);
    const [pair] = await pairsOf([groupOf(better, worse)]);
    expect(pair?.prompt).toHaveLength(3);
    expect(pair?.chosen).toMatchObject([assistant("right")]);
    expect(pair?.rejected).toMatchObject([assistant("wrong"), user("more"), assistant("end")]);
    const [last] = await pairsOf([groupOf(better, worse)], { turns: "last" });
    expect(last?.rejected).toMatchObject([assistant("wrong", { weight: 0 }), user("more"), assistant("end")]);
  });

  it("skips trajectories that differ first in a message of the environment, in their tools, or in their prompts", async () => {
    const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
    const first = [call("a", "{}"), result("a", "1"), assistant("x")];
    const groups = [
      groupOf(plain(1, first), plain(0, [call("b", "{}"), result("b", "2"), assistant("y")])),
      groupOf(plain(1, [assistant("x")], { tools }), plain(0, [assistant("y")])),
      groupOf(Trajectory.fromJSON({ messages_and_choices: [user("other"), assistant("x")], reward: 1 }), plain(0, [assistant("y")])),
      groupOf(plain(1, first), plain(0, first.slice(0, 2))),
    ];
    expect(await pairsOf(groups, { pairsPerGroup: Infinity })).toEqual([]);
  });

  it("trains only sampled turns of trajectories with choices, and keeps tools and variables of the template", async () => {
    const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
    const choice = (content: string) => ({ message: { role: "assistant", content }, finish_reason: "stop" });
    const items = (content: string) => [assistant("given"), user("next"), choice(content)];
    const more = { tools, chat_template_kwargs: { enable_thinking: false } };
    const [pair] = await pairsOf([groupOf(plain(1, items("good"), more), plain(0, items("bad"), more))]);
    expect(pair).toMatchObject({
      prompt: [user("q"), assistant("given", { weight: 0 }), user("next")],
      chosen: [assistant("good")],
      rejected: [assistant("bad")],
      tools,
      chatTemplateKwargs: { enable_thinking: false },
    });
  });

  it.each([
    [{ minMargin: -1 }, "minMargin"],
    [{ pairsPerGroup: 0 }, "pairsPerGroup"],
    [{ turns: "first" as "last" }, "turns"],
  ])("rejects the options %j", (options, param) => {
    expect(() => preferencePairs([], options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }));
  });

  it("rejects an item that is not a group", async () => {
    await expect(pairsOf([sampled(1) as unknown as TrajectoryGroup])).rejects.toMatchObject({ code: "E_ARGUMENT", param: "groups" });
  });
});

const PAIR: PreferencePair = { prompt: [user("q")], chosen: [assistant("a")], rejected: [assistant("b")] };

describe("preference files", () => {
  it("are written in OpenAI's format and read back equal", async () => {
    const path = join(await temporaryDirectory(), "pairs.jsonl.gz");
    const pairs = [PAIR, { ...PAIR, parallelToolCalls: false, chatTemplateKwargs: { a: 1 } }];
    expect(await writePreferences(path, pairs)).toMatchObject({ count: 2 });
    expect(await collected(readPreferences(path))).toEqual(pairs);
  });

  it("are read in TRL's format, and rejected with file, line and field", async () => {
    const path = join(await temporaryDirectory(), "pairs.jsonl");
    await writeFile(path, `${JSON.stringify(PAIR)}\n`);
    expect(await collected(readPreferences(path))).toEqual([PAIR]);
    await writeFile(path, `${JSON.stringify(PAIR)}\n\n${JSON.stringify({ ...PAIR, chosen: [{}] })}\n`);
    await expect(collected(readPreferences(path))).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringContaining(`${path}:3: \`chosen.0.role\``) as string,
    });
  });

  it("are named in the error of a reader of examples", async () => {
    const path = join(await temporaryDirectory(), "pairs.jsonl");
    await writePreferences(path, [PAIR]);
    await expect(readExamples(path).toArray()).rejects.toMatchObject({ message: expect.stringContaining("`readPreferences`") as string });
  });

  it.each([
    [{ ...PAIR, rejected: PAIR.chosen }, "Pair 2: expected `chosen` and `rejected` to differ"],
    [{ chosen: PAIR.chosen, rejected: PAIR.rejected } as PreferencePair, "Pair 2: expected `prompt`"],
    [{ ...PAIR, parallelToolCalls: "no" } as unknown as PreferencePair, "Pair 2: expected `parallelToolCalls`"],
  ])("reject the pair %j when written, and leave no file", async (pair, message) => {
    const path = join(await temporaryDirectory(), "pairs.jsonl");
    await expect(writePreferences(path, [PAIR, pair])).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringContaining(message) as string,
    });
    await expect(readFile(path)).rejects.toMatchObject({ code: "ENOENT" });
  });
});

describe("uploadPreferences", () => {
  it("uploads both halves, on which a job trains and validates; a repeated upload has the same address", async () => {
    const { service: running } = await startTestService();
    await using service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
    const model = await service.models.create({ project: "demo", name: "pairs", baseModel: "tiny" });
    const data = await uploadPreferences(service, { name: "pairs", train: [PAIR], validation: [{ ...PAIR, prompt: [user("r")] }] });
    expect(data).toMatchObject({
      url: expect.stringMatching(/\/datasets\/pairs:v0$/u),
      validationUrl: expect.stringMatching(/pairs-validation:v0$/u),
    });
    expect(await uploadPreferences(service, { name: "pairs", train: [PAIR], validation: [{ ...PAIR, prompt: [user("r")] }] })).toEqual(
      data,
    );
    const job = await model.trainPreferences(data, { beta: 0.2, learningRate: 0.1, lengthNormalization: true });
    await job.done();
    expect(await service.trainingJobs.get(job.id)).toMatchObject({ type: "preference", status: "succeeded" });
    expect(await model.checkpoint()).toMatchObject({
      lineage: { jobType: "preference" },
      metrics: { num_pairs: 1, num_validation_pairs: 1, "validation/loss": expect.any(Number) },
    });
    // Errors of the service name the options.
    await expect(model.trainPreferences(data, { referenceStep: 9 })).rejects.toMatchObject({ status: 404 });
    await expect(model.trainPreferences(data, { labelSmoothing: 0.6 })).rejects.toMatchObject({
      code: "E_ARGUMENT",
      param: "labelSmoothing",
    });
    await expect(model.trainPreferences(data, { warmupRatio: 0.1, warmupSteps: 1 })).rejects.toMatchObject({ param: "warmupRatio" });
  });

  it("rejects an upload without pairs before it creates a version", async () => {
    const { service: running } = await startTestService();
    await using service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
    await expect(uploadPreferences(service, { name: "none", train: [] })).rejects.toMatchObject({ code: "E_DATA", param: "train" });
    expect(await service.artifacts.list()).toEqual([]);
  });
});
