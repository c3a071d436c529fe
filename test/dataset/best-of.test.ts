import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  bestOf,
  readTrajectories,
  readTrajectoryGroups,
  uploadDataset,
  validateExamples,
  writeDataset,
  writeTrajectoryGroups,
  type BestOfOptions,
} from "../../src/library/dataset/index.ts";
import { connect, trainSft } from "../../src/index.ts";
import { Trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { startTestService } from "../service/support.ts";
import { group, sampled } from "../trajectory/samples.ts";

/** Rewards of the trajectories that `bestOf` selects from groups given by their rewards. */
async function selected(rewards: readonly (readonly number[])[], n: number, options?: BestOfOptions): Promise<number[]> {
  const groups = rewards.map((each) => group(...each.map((reward) => sampled(reward))));
  return (await bestOf(groups, n, options).toArray()).map(({ reward }) => reward);
}

/** A trajectory of one assistant message without token ids. */
function plain(reward: number, message: object): Trajectory {
  return Trajectory.fromJSON({
    messages_and_choices: [
      { role: "user", content: "q" },
      { role: "assistant", ...message },
    ],
    reward,
  });
}

const call = (id: string, args: string) => ({
  content: null,
  tool_calls: [{ id, type: "function", function: { name: "f", arguments: args } }],
});

describe("bestOf", () => {
  it("selects the trajectories with the highest rewards of each group, in the order of the groups", async () => {
    expect(
      await selected(
        [
          [1, 3, 2],
          [0.5, 0.1],
          [7, 9, 8],
        ],
        2,
      ),
    ).toEqual([3, 2, 0.5, 0.1, 9, 8]);
  });

  it("keeps the order of trajectories with equal rewards, and the trajectories unchanged", async () => {
    const tied = [sampled(1, "a"), sampled(2, "b"), sampled(1, "c"), sampled(2, "d")];
    const best = await bestOf([group(...tied)], 3).toArray();
    expect(best.map(({ lastText }) => lastText)).toEqual(["b", "d", "a"]);
    expect(best[0]).toBe(tied[1]);
  });

  it("selects no trajectory below the minimum reward, and one exactly at the minimum", async () => {
    expect(
      await selected(
        [
          [0.2, 0.5, 0.4],
          [0.1, 0.3],
        ],
        2,
        { minReward: 0.4 },
      ),
    ).toEqual([0.5, 0.4]);
  });

  it("skips constant groups without a minimum reward, and applies a minimum reward to them", async () => {
    const groups = [[0, 0], [1, 1], [1], [0, 1], []];
    expect(await selected(groups, 1)).toEqual([1]);
    expect(await selected(groups, 1, { minReward: 0.5 })).toEqual([1, 1, 1]);
    expect(await selected(groups, 1, { includeConstant: true })).toEqual([0, 1, 1, 1]);
    expect(await selected(groups, 1, { includeConstant: false, minReward: 0.5 })).toEqual([1]);
  });

  it("with `distinct`, selects the best of trajectories with the same sampled text", async () => {
    const answers = group(sampled(1, "a"), sampled(3, "b"), sampled(2, "b"), sampled(0, "c"));
    const texts = async (options: BestOfOptions) => (await bestOf([answers], 3, options).toArray()).map((t) => `${t.lastText}${t.reward}`);
    expect(await texts({ distinct: true })).toEqual(["b3", "a1", "c0"]);
    expect(await texts({})).toEqual(["b3", "b2", "a1"]);
  });

  it("with `distinct`, compares tool calls without their ids, and the reasoning", async () => {
    const calls = group(plain(3, call("x", "{}")), plain(2, call("y", "{}")), plain(1, call("z", '{"a":1}')));
    expect((await bestOf([calls], 3, { distinct: true }).toArray()).map(({ reward }) => reward)).toEqual([3, 1]);
    const thoughts = group(plain(2, { content: "4", reasoning: "2+2" }), plain(1, { content: "4", reasoning: "1+3" }));
    expect(await bestOf([thoughts], 3, { distinct: true }).toArray()).toHaveLength(2);
  });

  it("with `distinct`, ignores context: messages that no trainer trains", async () => {
    const answered = (reward: number, context: string) => {
      const { messages_and_choices: items } = sampled(reward, "same").toJSON();
      return Trajectory.fromJSON({ messages_and_choices: [{ role: "assistant", content: context }, ...items], reward });
    };
    expect(await bestOf([group(answered(2, "x"), answered(1, "y"))], 2, { distinct: true }).toArray()).toHaveLength(1);
  });

  it("reads one group per request, and closes its source when the loop is left", async () => {
    const seen = { given: 0, closed: 0 };
    const groups = {
      async *[Symbol.asyncIterator]() {
        try {
          for (let index = 0; index < 10; index++) {
            seen.given++;
            yield group(sampled(index), sampled(index + 0.5));
          }
        } finally {
          seen.closed++;
        }
      },
    };
    const dataset = bestOf(groups, 1);
    expect(seen.given).toBe(0);
    expect((await dataset.take(3).toArray()).map(({ reward }) => reward)).toEqual([0.5, 1.5, 2.5]);
    expect(seen).toEqual({ given: 3, closed: 1 });
    expect(await dataset.toArray()).toHaveLength(10);
  });

  it("rejects a second iteration over a generator", async () => {
    const generator = (function* () {
      yield group(sampled(1), sampled(2));
    })();
    const dataset = bestOf(generator, 1);
    expect(await dataset.toArray()).toHaveLength(1);
    await expect(dataset.toArray()).rejects.toMatchObject({ code: "E_CONFLICT" });
  });

  it.each<[string, () => unknown]>([
    ["n", () => bestOf([], 0)],
    ["n", () => bestOf([], 1.5)],
    ["minReward", () => bestOf([], 1, { minReward: Number.NaN })],
    ["minReward", () => bestOf([], 1, { minReward: "1" as never })],
  ])("rejects an invalid %s before it reads anything", (param, invoke) => {
    expect(invoke).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });

  it("rejects trajectories in place of groups, and names the reader of groups", async () => {
    await expect(bestOf([sampled(1)] as never, 1).toArray()).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: "Expected a TrajectoryGroup, got Trajectory; `readTrajectoryGroups` reads groups",
    });
  });

  it.each([null, undefined])("rejects %s in place of a group", async (value) => {
    await expect(bestOf([value as never], 1).toArray()).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: `Expected a TrajectoryGroup, got ${value}; \`readTrajectoryGroups\` reads groups`,
    });
  });
});

const rewards = fc.array(fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 6 }), { maxLength: 5 });
const count = fc.integer({ min: 1, max: 5 });

describe("a selection of bestOf", () => {
  test.prop([rewards, count, fc.boolean(), fc.option(fc.integer({ min: 0, max: 5 }), { nil: undefined })])(
    "has at most n trajectories per group, none worse than an unselected one, none below the minimum",
    async (groups, n, includeConstant, minReward) => {
      for (const each of groups) {
        const best = await selected([each], n, { includeConstant, minReward });
        const isSkipped = !includeConstant && new Set(each).size < 2;
        const suitable = isSkipped ? [] : each.filter((reward) => reward >= (minReward ?? 0));
        expect(best).toHaveLength(Math.min(n, suitable.length));
        expect(best).toEqual(suitable.toSorted((a, b) => b - a).slice(0, n));
      }
      // Groups do not influence each other.
      const alone = await Promise.all(groups.map((each) => selected([each], n, { includeConstant, minReward })));
      expect(await selected(groups, n, { includeConstant, minReward })).toEqual(alone.flat());
    },
  );

  test.prop([fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.constantFrom("a", "b", "c")), { maxLength: 8 }), count])(
    "with `distinct` has every text at most once, with the highest reward of the text",
    async (rollouts, n) => {
      const all = group(...rollouts.map(([reward, text]) => sampled(reward, text)));
      const best = await bestOf([all], n, { distinct: true, includeConstant: true }).toArray();
      const texts = best.map(({ lastText }) => lastText);
      expect(texts).toHaveLength(Math.min(n, new Set(rollouts.map(([, text]) => text)).size));
      expect(new Set(texts).size).toBe(texts.length);
      for (const { reward, lastText } of best) {
        expect(reward).toBe(Math.max(...rollouts.filter(([, text]) => text === lastText).map(([each]) => each)));
      }
    },
  );
});

it("stored groups become a dataset file that the service trains", async () => {
  const directory = await mkdtemp(join(tmpdir(), "best-of-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, "groups.jsonl");
  const groups = Array.from({ length: 12 }, (_, at) =>
    group(sampled(0.1, `worse${at}`), sampled(1, `best${at}`), sampled(0.5, `mid${at}`)),
  );
  const failed = new TrajectoryGroup({ trajectories: [sampled(0, "x")], exceptions: [{ type: "Error", message: "m", traceback: "" }] });
  await writeTrajectoryGroups(path, [...groups, failed]);

  const best = bestOf(readTrajectoryGroups(path), 1, { minReward: 0.9 });
  const { path: file } = await writeDataset(join(directory, "best"), best);
  expect(await validateExamples(file)).toEqual({ lines: 12, examples: 12, invalid: [], formats: { trajectory: 12 } });
  expect((await readTrajectories(file).toArray()).map(({ lastText }) => lastText)).toEqual(groups.map((_, at) => `best${at}`));

  const { service: running } = await startTestService();
  const service = await connect({ dataDir: running.dataDir, apiKey: running.apiKey });
  onTestFinished(() => service.close());
  const { train, validation } = best.split({ validation: 0.4, seed: 3 });
  const data = await uploadDataset(service, { name: "best", train, validation });
  const model = await service.models.create({ project: "p", name: "student", baseModel: "tiny" });
  const [trained, held] = [(await train.toArray()).length, (await validation.toArray()).length];
  expect(trained + held).toBe(12);
  const { metrics } = await (await model.trainSft(data, { batchSize: 12 })).done();
  expect(metrics).toMatchObject({ num_trajectories: trained });
  const run = trainSft({ model, data, runDir: join(directory, "run"), report: false, train: { batchSize: 4 } });
  expect(await run.done).toMatchObject({ steps: 1, checkpointStep: 2 });
});
