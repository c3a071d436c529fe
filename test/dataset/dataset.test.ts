import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { Dataset, readTrajectories, writeTrajectories, type RewardInput } from "../../src/library/dataset/index.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";
import { sampled } from "../trajectory/samples.ts";

const numbered = (count: number) => Array.from({ length: count }, (_, index) => sampled(index));
const rewards = async (dataset: AsyncIterable<Trajectory>) => {
  const all: number[] = [];
  for await (const { reward } of dataset) all.push(reward);
  return all;
};

/** A source that counts how many were asked for, and whether it was closed. */
function watched(count: number) {
  const seen = { given: 0, closed: 0 };
  const dataset = Dataset.from({
    async *[Symbol.asyncIterator]() {
      try {
        for (const each of numbered(count)) {
          seen.given++;
          yield each;
        }
      } finally {
        seen.closed++;
      }
    },
  });
  return { dataset, seen };
}

describe("a dataset", () => {
  it("reads nothing before iteration, then one record at a time, and closes its source when the loop is left", async () => {
    const { dataset, seen } = watched(100);
    const stages = dataset
      .filter(({ reward }) => reward % 2 === 0)
      .map((t) => t.with({ metadata: { seen: true } }))
      .dedupe({ by: "messages" })
      .balance({ by: (t) => t.metadata["seen"], max: 50 });
    expect(seen.given).toBe(0);
    for await (const each of stages) {
      expect(each.metadata).toEqual({ seen: true });
      if (each.reward === 4) break;
    }
    expect(seen).toEqual({ given: 5, closed: 1 });
  });

  it("starts from the beginning with each iteration; a dataset from a generator rejects the second", async () => {
    const twice = Dataset.from(numbered(3)).filter(({ reward }) => reward > 0);
    expect(await rewards(twice)).toEqual([1, 2]);
    expect(await rewards(twice)).toEqual([1, 2]);
    const once = Dataset.from(
      (function* () {
        yield* numbered(2);
      })(),
    );
    expect(await rewards(once)).toEqual([0, 1]);
    await expect(rewards(once)).rejects.toMatchObject({ code: "E_CONFLICT" });
  });

  it("take stops reading after its last record", async () => {
    const { dataset, seen } = watched(10);
    expect(await rewards(dataset.take(3))).toEqual([0, 1, 2]);
    expect(seen).toEqual({ given: 3, closed: 1 });
    expect(await rewards(dataset.take(0))).toEqual([]);
    expect(await rewards(dataset.take(99))).toHaveLength(10);
  });

  it("throws the error of a stage unchanged and closes the source", async () => {
    const { dataset, seen } = watched(10);
    const broken = new Error("mine");
    await expect(rewards(dataset.map(() => Promise.reject(broken)))).rejects.toBe(broken);
    expect(seen).toEqual({ given: 1, closed: 1 });
    await expect(rewards(dataset.map(() => ({}) as Trajectory))).rejects.toMatchObject({ code: "E_ARGUMENT" });
  });

  it.each<[string, (dataset: Dataset) => unknown]>([
    ["count", (d) => d.take(-1)],
    ["count", (d) => d.take(1.5)],
    ["fraction", (d) => d.sample(1.1)],
    ["fraction", (d) => d.sample(Number.NaN)],
    ["seed", (d) => d.sample(0.5, 0.5)],
    ["bufferSize", (d) => d.shuffle({ bufferSize: 0 })],
    ["max", (d) => d.balance({ by: () => 1, max: 0 })],
    ["by", (d) => d.dedupe({ by: "text" as never })],
    ["validation", (d) => d.split({ validation: 1 })],
    ["validation", (d) => d.split({ validation: "0.1" as never })],
  ])("rejects an invalid %s before it reads anything", (param, call) => {
    expect(() => call(Dataset.from([]))).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });
});

describe("sample and shuffle", () => {
  it("sample keeps about the requested fraction; the same seed keeps the same records, another seed others", async () => {
    const dataset = Dataset.from(numbered(1000));
    const kept = await rewards(dataset.sample(0.3, 7));
    // Binomial(1000, 0.3): five standard deviations are 72.
    expect(Math.abs(kept.length - 300)).toBeLessThan(72);
    expect(await rewards(dataset.sample(0.3, 7))).toEqual(kept);
    expect(await rewards(dataset.sample(0.3, 8))).not.toEqual(kept);
    expect(await rewards(dataset.sample(0))).toEqual([]);
    expect(await rewards(dataset.sample(1))).toHaveLength(1000);
  });

  test.prop([fc.nat(40), fc.integer({ min: 1, max: 50 }), fc.integer()], { numRuns: 50 })(
    "shuffle keeps every record, and returns none earlier than the buffer size allows",
    async (count, bufferSize, seed) => {
      const shuffled = await rewards(Dataset.from(numbered(count)).shuffle({ bufferSize, seed }));
      expect(shuffled.toSorted((a, b) => a - b)).toEqual(numbered(count).map(({ reward }) => reward));
      for (const [place, reward] of shuffled.entries()) expect(reward - place).toBeLessThanOrEqual(bufferSize);
    },
  );

  it("shuffle makes every order of a dataset that fits the buffer about equally likely", async () => {
    const counts = new Map<string, number>();
    for (let seed = 0; seed < 1200; seed++) {
      const order = (await rewards(Dataset.from(numbered(3)).shuffle({ seed }))).join("");
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    expect(counts.size).toBe(6);
    // 200 each; five standard deviations are 65.
    for (const count of counts.values()) expect(Math.abs(count - 200)).toBeLessThan(65);
  });
});

describe("dedupe and balance", () => {
  const same = [sampled(1, "a"), sampled(2, "a"), sampled(3, "b")];
  it("dedupe keeps the first of equal trajectories by messages, by all content, or by a key", async () => {
    expect(await rewards(Dataset.from(same).dedupe({ by: "messages" }))).toEqual([1, 3]);
    expect(await rewards(Dataset.from([...same, sampled(1, "a")]).dedupe({ by: "trajectory" }))).toEqual([1, 2, 3]);
    expect(await rewards(Dataset.from(same).dedupe({ by: (t) => t.reward > 1 }))).toEqual([1, 2]);
  });

  it("dedupe ignores the key order of messages", async () => {
    const of = (message: object, reward: number) => Trajectory.fromJSON({ messages_and_choices: [message], reward });
    const dataset = Dataset.from([of({ role: "user", content: "q" }, 1), of({ content: "q", role: "user" }, 2)]);
    expect(await rewards(dataset.dedupe({ by: "messages" }))).toEqual([1]);
  });

  it("throws for a key that a trajectory does not have", async () => {
    const dataset = Dataset.from([sampled(1).with({ metadata: { task: "a" } })]);
    const expected = { code: "E_ARGUMENT", param: "by", message: expect.stringContaining("has: task") as string };
    await expect(rewards(dataset.dedupe({ by: (t) => t.metadata["tsak"] }))).rejects.toMatchObject(expected);
    await expect(rewards(dataset.split({ validation: 0.5, by: (t) => t.metadata["tsak"] }).train)).rejects.toMatchObject(expected);
  });

  it('balance keeps the first of each class; 1, "1", null and undefined are different classes', async () => {
    const classes = [1, "1", null, undefined, 1, "1", null, undefined, 1];
    const dataset = Dataset.from(numbered(classes.length));
    expect(await rewards(dataset.balance({ by: ({ reward }) => classes[reward], max: 1 }))).toEqual([0, 1, 2, 3]);
    expect(await rewards(dataset.balance({ by: ({ reward }) => classes[reward], max: 2 }))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });
});

describe("split", () => {
  test.prop([fc.array(fc.nat(30), { maxLength: 40 }), fc.integer(), fc.double({ min: 0.05, max: 0.95, noNaN: true })], { numRuns: 60 })(
    "assigns each record to one half, and equal records to the same half in any order",
    async (texts, seed, validation) => {
      const all = texts.map((text, index) => sampled(index, `t${text}`));
      const textsOf = (dataset: Dataset) => dataset.toArray().then((list) => list.map(({ lastText }) => lastText).toSorted());
      const halves = Dataset.from(all).split({ validation, seed });
      const [train, held] = [await textsOf(halves.train), await textsOf(halves.validation)];
      expect([...train, ...held].toSorted()).toEqual(all.map(({ lastText }) => lastText).toSorted());
      expect(train.filter((text) => held.includes(text))).toEqual([]);
      const reversed = Dataset.from(all.toReversed()).split({ validation, seed });
      expect(await textsOf(reversed.validation)).toEqual(held);
    },
  );

  it("holds out about the requested fraction, independent of another seed's split and of sampling with the same seed", async () => {
    const dataset = Dataset.from(numbered(2000));
    const held = await rewards(dataset.split({ validation: 0.2, seed: 7 }).validation);
    expect(Math.abs(held.length - 400)).toBeLessThan(90);
    expect(await rewards(dataset.split({ validation: 0.2, seed: 8 }).validation)).not.toEqual(held);
    const both = await rewards(dataset.sample(0.5, 7).split({ validation: 0.2, seed: 7 }).validation);
    expect(Math.abs(both.length - 200)).toBeLessThan(64);
  });

  it("keeps records with the same key in one half", async () => {
    const dataset = Dataset.from(numbered(200)).map((t) => t.with({ metadata: { scenario_id: String(t.reward % 20) } }));
    const { train, validation } = dataset.split({ validation: 0.5, by: (t) => t.metadata["scenario_id"] });
    const ids = async (half: Dataset) => new Set((await rewards(half)).map((reward) => reward % 20));
    const [left, right] = [await ids(train), await ids(validation)];
    expect([...left].filter((id) => right.has(id))).toEqual([]);
    expect(left.size + right.size).toBe(20);
  });
});

describe("rescore", () => {
  const long = ({ text }: { readonly text: string }) => text.length > 2;
  it("sets the weighted sum and each raw value, and removes the metrics of earlier rewards", async () => {
    const before = sampled(9, "abc").with({ metrics: { "reward/old": 1, turns: 2 } });
    const [after] = await Dataset.from([before])
      .rescore([long, { name: "letters", weight: 0.5, score: async ({ trajectory }) => trajectory.choices[0]!.token_ids!.length }])
      .toArray();
    expect(after).toMatchObject({ reward: 2.5, metrics: { "reward/long": 1, "reward/letters": 3, turns: 2 } });
    expect(after!.metrics).not.toHaveProperty("reward/old");
    expect(after!.choices).toEqual(before.choices);
    expect(before.reward).toBe(9);
  });

  it("requires `scenario` for rewards that read a scenario", async () => {
    const exact = { name: "exact", weight: 1, score: ({ scenario, text }: RewardInput<{ answer: string }>) => text === scenario.answer };
    const dataset = Dataset.from([sampled(0, "a"), sampled(0, "b")]);
    expect(await rewards(dataset.rescore([exact], { scenario: () => Promise.resolve({ answer: "b" }) }))).toEqual([0, 1]);
    // @ts-expect-error -- without `scenario`, the reward would look into undefined.
    const wrong = dataset.rescore([exact]);
    expectTypeOf(wrong).toEqualTypeOf<Dataset>();
  });

  it("throws E_REWARD with the reward, the index and the scenario of the first trajectory that a reward fails on", async () => {
    const dataset = Dataset.from([sampled(0, "a"), sampled(0, "b").with({ metadata: { scenario_id: "s1" } })]).filter(() => true);
    const bad = ({ text }: { readonly text: string }) => (text === "b" ? Number.NaN : 1);
    // The index restarts with every iteration.
    const rescored = dataset.rescore([bad]);
    for (let iteration = 0; iteration < 2; iteration++) {
      await expect(rewards(rescored)).rejects.toMatchObject({
        code: "E_REWARD",
        message:
          "Reward `bad` of `Dataset.rescore`, trajectory at index 1 with scenario `s1`, " +
          "must give a finite number or a boolean, got `NaN` (number)",
      });
    }
    const busy = Object.assign(new Error("busy"), { status: 503 });
    await expect(rewards(dataset.rescore([{ name: "judge", score: () => Promise.reject(busy) }]))).rejects.toMatchObject({
      code: "E_REWARD",
      message: "Reward `judge` of `Dataset.rescore`, trajectory at index 0, failed with Error: busy",
      cause: busy,
      retryable: true,
    });
  });

  it("rejects with the signal's own reason, before a reward is called and while one runs", async () => {
    const dataset = Dataset.from([sampled(0)]);
    const reason = new Error("enough");
    await expect(rewards(dataset.rescore([long], { signal: AbortSignal.abort(reason) }))).rejects.toBe(reason);
    const controller = new AbortController();
    const aborting = {
      name: "aborting",
      score: ({ signal }: RewardInput<unknown>) => {
        controller.abort(reason);
        signal.throwIfAborted();
        return 1;
      },
    };
    await expect(rewards(dataset.rescore([aborting], { signal: controller.signal }))).rejects.toBe(reason);
  });

  it.each([
    ["an empty list", []],
    ["a value that is not a list", {}],
    [
      "a function without a name",
      [
        (
          () => () =>
            1
        )(),
      ],
    ],
    ["a reward without a function", [{ name: "x" }]],
    ["a weight that is not finite", [{ name: "x", weight: Number.NaN, score: long }]],
    ["two rewards with the same name", [long, { name: "long", score: () => 1 }]],
  ])("rejects %s before anything is read", (_, list) => {
    const dataset = Dataset.from([sampled(0)]);
    expect(() => dataset.rescore(list as never)).toThrow(ConfigError);
  });
});

describe("readTrajectories", () => {
  it("reads all files of a glob in the order of their names", async () => {
    const directory = await mkdtemp(join(tmpdir(), "whetstone-glob-"));
    onTestFinished(() => rm(directory, { recursive: true }));
    await writeTrajectories(join(directory, "b.jsonl"), [sampled(3)]);
    await writeTrajectories(join(directory, "a.jsonl.gz"), [sampled(1), sampled(2)]);
    expect(await rewards(readTrajectories(`${directory}/*.jsonl{,.gz}`))).toEqual([1, 2, 3]);
    const none = readTrajectories(`${directory}/*.json`);
    await expect(rewards(none)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("matches nothing") as string });
  });
});
