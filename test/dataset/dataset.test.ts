import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { Dataset, readTrajectories, writeTrajectories, type RescoreInput } from "../../src/dataset/index.ts";
import { Trajectory } from "../../src/trajectory/index.ts";
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
  it("reads nothing before it is iterated, one at a time while it is, and closes its source when left", async () => {
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

  it("starts again with each iteration; one from a generator refuses the second", async () => {
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

  it("take stops reading at its last one", async () => {
    const { dataset, seen } = watched(10);
    expect(await rewards(dataset.take(3))).toEqual([0, 1, 2]);
    expect(seen).toEqual({ given: 3, closed: 1 });
    expect(await rewards(dataset.take(0))).toEqual([]);
    expect(await rewards(dataset.take(99))).toHaveLength(10);
  });

  it("an error of a stage passes unchanged and closes the source", async () => {
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
    ["rewards", (d) => d.rescore([])],
    ["rewards", (d) => d.rescore([() => 1])],
    ["rewards", (d) => d.rescore([{ name: "a", weight: Number.NaN, score: () => 1 }])],
    [
      "rewards",
      (d) =>
        d.rescore([
          { name: "a", score: () => 1 },
          { name: "a", score: () => 1 },
        ]),
    ],
  ])("refuses a wrong %s before it reads anything", (param, call) => {
    expect(() => call(Dataset.from([]))).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });
});

describe("sample and shuffle", () => {
  it("keep about the share asked for, the same for the same seed, others for another", async () => {
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
    "shuffle loses nothing, and hands a record on at most a buffer's length early",
    async (count, bufferSize, seed) => {
      const shuffled = await rewards(Dataset.from(numbered(count)).shuffle({ bufferSize, seed }));
      expect(shuffled.toSorted((a, b) => a - b)).toEqual(numbered(count).map(({ reward }) => reward));
      for (const [place, reward] of shuffled.entries()) expect(reward - place).toBeLessThanOrEqual(bufferSize);
    },
  );

  it("every order of a dataset that fits the buffer is about equally likely", async () => {
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
  it("keep the first of equals by messages, by everything, or by a key", async () => {
    expect(await rewards(Dataset.from(same).dedupe({ by: "messages" }))).toEqual([1, 3]);
    expect(await rewards(Dataset.from([...same, sampled(1, "a")]).dedupe({ by: "trajectory" }))).toEqual([1, 2, 3]);
    expect(await rewards(Dataset.from(same).dedupe({ by: (t) => t.reward > 1 }))).toEqual([1, 2]);
  });

  it("the order of keys does not make messages different", async () => {
    const of = (message: object, reward: number) => Trajectory.fromJSON({ messages_and_choices: [message], reward });
    const dataset = Dataset.from([of({ role: "user", content: "q" }, 1), of({ content: "q", role: "user" }, 2)]);
    expect(await rewards(dataset.dedupe({ by: "messages" }))).toEqual([1]);
  });

  it("a key that a trajectory does not have is an error, not one large class", async () => {
    const dataset = Dataset.from([sampled(1).with({ metadata: { task: "a" } })]);
    const expected = { code: "E_ARGUMENT", param: "by", message: expect.stringContaining("has: task") as string };
    await expect(rewards(dataset.dedupe({ by: (t) => t.metadata["tsak"] }))).rejects.toMatchObject(expected);
    await expect(rewards(dataset.split({ validation: 0.5, by: (t) => t.metadata["tsak"] }).train)).rejects.toMatchObject(expected);
  });

  it('balance keeps the first of each class; 1, "1", null and nothing are classes of their own', async () => {
    const classes = [1, "1", null, undefined, 1, "1", null, undefined, 1];
    const dataset = Dataset.from(numbered(classes.length));
    expect(await rewards(dataset.balance({ by: ({ reward }) => classes[reward], max: 1 }))).toEqual([0, 1, 2, 3]);
    expect(await rewards(dataset.balance({ by: ({ reward }) => classes[reward], max: 2 }))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });
});

describe("split", () => {
  test.prop([fc.array(fc.nat(30), { maxLength: 40 }), fc.integer(), fc.double({ min: 0.05, max: 0.95, noNaN: true })], { numRuns: 60 })(
    "gives each record to one half, equals to the same, whatever the order",
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

  it("has about the share asked for; another seed, another split; sampling by the same seed does not undo it", async () => {
    const dataset = Dataset.from(numbered(2000));
    const held = await rewards(dataset.split({ validation: 0.2, seed: 7 }).validation);
    expect(Math.abs(held.length - 400)).toBeLessThan(90);
    expect(await rewards(dataset.split({ validation: 0.2, seed: 8 }).validation)).not.toEqual(held);
    const both = await rewards(dataset.sample(0.5, 7).split({ validation: 0.2, seed: 7 }).validation);
    expect(Math.abs(both.length - 200)).toBeLessThan(64);
  });

  it("keeps what has one key together", async () => {
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
  it("gives the weighted sum and each raw value, and takes away those of rewards before", async () => {
    const before = sampled(9, "abc").with({ metrics: { "reward/old": 1, turns: 2 } });
    const [after] = await Dataset.from([before])
      .rescore([long, { name: "letters", weight: 0.5, score: async ({ trajectory }) => trajectory.choices[0]!.token_ids!.length }])
      .toArray();
    expect(after).toMatchObject({ reward: 2.5, metrics: { "reward/long": 1, "reward/letters": 3, turns: 2 } });
    expect(after!.metrics).not.toHaveProperty("reward/old");
    expect(after!.choices).toEqual(before.choices);
    expect(before.reward).toBe(9);
  });

  it("asks for the scenario where rewards look at one", async () => {
    const exact = { name: "exact", weight: 1, score: ({ scenario, text }: RescoreInput<{ answer: string }>) => text === scenario.answer };
    const dataset = Dataset.from([sampled(0, "a"), sampled(0, "b")]);
    expect(await rewards(dataset.rescore([exact], { scenario: () => Promise.resolve({ answer: "b" }) }))).toEqual([0, 1]);
    // @ts-expect-error -- without `scenario`, the reward would look into undefined.
    const wrong = dataset.rescore([exact]);
    expectTypeOf(wrong).toEqualTypeOf<Dataset>();
  });

  it("a value that is not finite is an error, what a reward throws passes, an abort has its own reason", async () => {
    const dataset = Dataset.from([sampled(0)]);
    await expect(rewards(dataset.rescore([{ name: "bad", score: () => Number.NaN }]))).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: expect.stringContaining("`bad`") as string,
    });
    const broken = new Error("judge");
    await expect(rewards(dataset.rescore([{ name: "throws", score: () => Promise.reject(broken) }]))).rejects.toBe(broken);
    const reason = new Error("enough");
    await expect(rewards(dataset.rescore([long], { signal: AbortSignal.abort(reason) }))).rejects.toBe(reason);
  });
});

describe("readTrajectories", () => {
  it("is a dataset over all files of a glob, in order of their names", async () => {
    const directory = await mkdtemp(join(tmpdir(), "whetstone-glob-"));
    onTestFinished(() => rm(directory, { recursive: true }));
    await writeTrajectories(join(directory, "b.jsonl"), [sampled(3)]);
    await writeTrajectories(join(directory, "a.jsonl.gz"), [sampled(1), sampled(2)]);
    expect(await rewards(readTrajectories(`${directory}/*.jsonl{,.gz}`))).toEqual([1, 2, 3]);
    const none = readTrajectories(`${directory}/*.json`);
    await expect(rewards(none)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("matches nothing") as string });
  });
});
