import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError } from "../../src/base/errors.ts";
import { buildSftBatch, planSft, readSftExample, sftSequences, shuffledIndices, type TokenSequence } from "../../src/learner/index.ts";
import { sharedModel } from "../tokenizer/fixture.ts";
import { choice } from "./helpers.ts";

const { tokenizer } = await sharedModel();

const limits = { contextLength: 1024 };

function trainedText(sequences: readonly TokenSequence[]): string[] {
  return sequences.map(({ tokens, mask }) => tokenizer.decode([...tokens].filter((_, index) => mask[index] === 1)));
}

function sequencesOf(line: unknown, within = limits) {
  return sftSequences(readSftExample(line, "line 1"), tokenizer, within, { where: "line 1" });
}

describe("sftSequences", () => {
  it("trains the assistant messages of a chat line", () => {
    const { sequences, droppedSequences } = sequencesOf({
      messages: [
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
        { role: "user", content: "c" },
        { role: "assistant", content: "d" },
      ],
    });
    expect(trainedText(sequences)).toEqual(["b<|end|>d<|end|>"]);
    expect(droppedSequences).toBe(0);
  });

  it("keeps messages with weight 0 as context", () => {
    const { sequences } = sequencesOf({
      messages: [
        { role: "user", content: "a" },
        { role: "assistant", content: "b", weight: 0 },
        { role: "user", content: "c" },
        { role: "assistant", content: "d", weight: 1 },
      ],
    });
    expect(trainedText(sequences)).toEqual(["d<|end|>"]);
    expect(tokenizer.decode(sequences[0]?.tokens ?? [])).toContain("<|assistant|>b<|end|>");
  });

  it("uses the token ids of choices exactly, without log-probabilities, and plain messages as context", () => {
    const sampled = { ...choice([1, 2], [3]), logprobs: null };
    const { sequences } = sequencesOf({
      messages_and_choices: [
        { role: "user", content: "q" },
        { role: "assistant", content: "not trained" },
        sampled,
        choice([1, 2, 3, 4], [5]),
        choice([7], [8]),
      ],
    });
    expect(sequences.map(({ tokens }) => [...tokens])).toEqual([
      [1, 2, 3, 4, 5],
      [7, 8],
    ]);
    expect(sequences.map(({ mask }) => [...mask])).toEqual([
      [0, 0, 1, 0, 1],
      [0, 1],
    ]);
  });

  it("renders a history with choices without token ids, and trains only its choices", () => {
    const plain = (content: string) => ({ message: { role: "assistant", content }, finish_reason: "stop" });
    const { sequences } = sequencesOf({
      messages_and_choices: [
        { role: "user", content: "q" },
        { role: "assistant", content: "context" },
        { role: "user", content: "r" },
        plain("answer"),
      ],
      additional_histories: [
        { messages_and_choices: [{ role: "user", content: "s" }, plain("other")] },
        { messages_and_choices: [{ role: "user", content: "unanswered" }] },
      ],
    });
    expect(trainedText(sequences)).toEqual(["answer<|end|>", "other<|end|>"]);
  });

  it("trains every assistant message of a trajectory without choices", () => {
    const { sequences } = sequencesOf({
      messages_and_choices: [
        { role: "user", content: "q" },
        { role: "assistant", content: "b" },
      ],
    });
    expect(trainedText(sequences)).toEqual(["b<|end|>"]);
  });

  it("trains only the last turn with `assistantTurns: last`", () => {
    const last = (line: unknown) =>
      sftSequences(readSftExample(line, "line 1"), tokenizer, limits, { assistantTurns: "last", where: "line 1" }).sequences;
    const chat = last({
      messages: [
        { role: "assistant", content: "a" },
        { role: "user", content: "b" },
        { role: "assistant", content: "c" },
        { role: "user", content: "d" },
        { role: "assistant", content: "e", weight: 0 },
      ],
    });
    expect(trainedText(chat)).toEqual(["c<|end|>"]);
    expect(tokenizer.decode(chat[0]?.tokens ?? [])).toContain("a<|end|>");
    const sampled = last({ messages_and_choices: [choice([1, 2], [3]), choice([1, 2, 3, 4], [5]), choice([7], [8, 9])] });
    expect(sampled.map(({ tokens, mask }) => [[...tokens], [...mask]])).toEqual([
      [
        [7, 8, 9],
        [0, 1, 1],
      ],
    ]);
  });

  it("gives a line's weight to all of its sequences", () => {
    const line = { messages_and_choices: [choice([1], [2])], additional_histories: [{ messages_and_choices: [choice([3], [4])] }] };
    expect(sequencesOf({ ...line, weight: 0.5 }).sequences.map(({ weight }) => weight)).toEqual([0.5, 0.5]);
    expect(sequencesOf(line).sequences.map(({ weight }) => weight)).toEqual([undefined, undefined]);
  });

  it("drops and counts sequences longer than the context", () => {
    const line = {
      messages: [
        { role: "user", content: "x".repeat(100) },
        { role: "assistant", content: "yes" },
      ],
    };
    expect(sequencesOf(line, { contextLength: 50 })).toEqual({ sequences: [], droppedSequences: 1, droppedTokens: 4, missingBytes: 0 });
  });

  it.each([
    ["no assistant", { messages: [{ role: "user", content: "a" }] }, /line 1: expected at least one assistant message or choice/],
    [
      "half a weight on a message",
      { messages: [{ role: "assistant", content: "a", weight: 0.5 }] },
      /line 1: messages\.0: expected the `weight` of a message to be 0 \(context\) or 1/,
    ],
    ["only weight 0", { messages: [{ role: "assistant", content: "a", weight: 0 }] }, /line 1: expected at least one/],
    [
      "token ids on some choices",
      { messages_and_choices: [choice([1], [2]), { message: { role: "assistant", content: "x" } }] },
      /line 1: messages_and_choices: 1 of 2 choices/,
    ],
    ["an id outside the vocabulary", { messages_and_choices: [choice([1], [512])] }, /line 1: token id 512/],
    [
      "tool arguments that are not JSON",
      { messages: [{ role: "assistant", tool_calls: [{ function: { name: "f", arguments: "{" } }] }] },
      /line 1: messages: messages\[0\]\.tool_calls\[0\]/,
    ],
  ])("rejects a line with %s, naming the location", (_, line, message) => {
    const read = () => sequencesOf(line, { ...limits, vocabularySize: 300 } as typeof limits);
    expect(read).toThrow(DataError);
    expect(read).toThrow(message);
  });
});

describe("readSftExample", () => {
  it.each([
    ["text", "x"],
    ["null", null],
    ["a list", []],
    ["an object without either key", { prompt: "x" }],
    ["messages that are no list", { messages: "x" }],
    ["no messages", { messages: [] }],
    ["a message without a role", { messages: [{ content: "x" }] }],
    ["a weight of 0 for the line", { messages: [{ role: "assistant", content: "x" }], weight: 0 }],
    ["a weight that float32 may lose", { messages: [{ role: "assistant", content: "x" }], weight: 1e-7 }],
    ["a weight that may overflow a sum", { messages_and_choices: [], weight: 1e308 }],
    ["a weight that is no number", { messages_and_choices: [], weight: "2" }],
    ["a reward that is no number", { messages_and_choices: [], reward: "high" }],
  ])("rejects %s, naming the line", (_, value) => {
    expect(() => readSftExample(value, "trajectories.jsonl line 3")).toThrow(DataError);
    expect(() => readSftExample(value, "trajectories.jsonl line 3")).toThrow(/^trajectories\.jsonl line 3: /);
  });
});

it("names the range of weights", () => {
  const line = { messages: [{ role: "assistant", content: "x" }] };
  expect(() => readSftExample({ ...line, weight: 1e308 }, "line 1")).toThrow(
    /line 1: weight: expected a number from 0.000001 to 1000000, got 1e\+308/,
  );
  for (const weight of [1e-6, 1, 1e6, null]) expect(readSftExample({ ...line, weight }, "line 1").weight).toBe(weight);
});

describe("buildSftBatch", () => {
  const sequence = (...mask: readonly number[]): TokenSequence => ({ tokens: Int32Array.from(mask.keys()), mask: Uint8Array.from(mask) });

  it("gives every trained token of the batch the same weight, in total 1", () => {
    const batch = buildSftBatch([sequence(0, 1, 1), sequence(0, 0, 1, 1)]);
    expect(batch.rows.map((row) => [...row.weights])).toEqual([
      [0, 0.25, 0.25],
      [0, 0, 0.25, 0.25],
    ]);
    expect(batch).toMatchObject({ loss: { kind: "cross-entropy" }, tokens: 7, trainedTokens: 4 });
  });

  it("scales token weights by the example's weight, in total 1", () => {
    const { rows } = buildSftBatch([{ ...sequence(0, 1, 1), weight: 3 }, sequence(0, 0, 1, 1)]);
    expect(rows.map((row) => [...row.weights])).toEqual([
      [0, 0.375, 0.375],
      [0, 0, 0.125, 0.125],
    ]);
    const scaled = buildSftBatch([
      { ...sequence(0, 1, 1), weight: 12 },
      { ...sequence(0, 0, 1, 1), weight: 4 },
    ]);
    expect(scaled.rows).toEqual(rows);
  });

  it.each([[[]], [[sequence(0, 0)]]])("rejects a batch without a trained token", (sequences) => {
    expect(() => buildSftBatch(sequences)).toThrow(ArgumentError);
  });
});

describe("planSft", () => {
  const stepsOf = (...given: Parameters<typeof planSft>) => [...planSft(...given).steps()];

  it("has the documented defaults", () => {
    const plan = planSft(5);
    expect(plan.batchSize).toBe(2);
    const steps = [...plan.steps()];
    expect(plan.stepCount).toBe(3);
    expect(steps.map((step) => step.examples)).toEqual([[0, 1], [2, 3], [4]]);
    expect(steps[0]).toEqual({
      examples: [0, 1],
      epoch: 0,
      adam: { learningRate: 5e-5, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 },
      validates: false,
    });
    expect(plan.heldOut).toEqual([]);
    expect(stepsOf(5, { batch_size: null, learning_rate: null }, { epochs: null, shuffle_seed: null })).toEqual(steps);
    expect(stepsOf(5, { batch_size: "auto" })).toEqual(steps);
  });

  it("accepts one learning rate per batch over all epochs, and rejects any other number", () => {
    const config = { batch_size: 2, learning_rate: [1, 2, 3, 4] };
    expect(stepsOf(4, config, { epochs: 2 }).map((step) => [step.epoch, step.adam.learningRate])).toEqual([
      [0, 1],
      [0, 2],
      [1, 3],
      [1, 4],
    ]);
    expect(() => planSft(4, config)).toThrow(ArgumentError);
    expect(() => planSft(4, config)).toThrow(/one learning rate per batch, 2 in all .*got 4/);
  });

  it("converts the optimizer settings", () => {
    const { adam } = stepsOf(1, { learning_rate: 0.5 }, { max_grad_norm: 0, weight_decay: 0.1, adam_beta1: 0.2, adam_beta2: 0.3 })[0] ?? {};
    expect(adam).toEqual({ learningRate: 0.5, beta1: 0.2, beta2: 0.3, epsilon: 1e-8, weightDecay: 0.1, maxGradNorm: 0 });
  });

  const ratesOf = (...given: Parameters<typeof planSft>) => stepsOf(...given).map(({ adam }) => adam.learningRate);

  it("computes the scheduled learning rate of every step over all epochs", () => {
    const linear = { learning_rate_schedule: "linear", warmup_steps: 2, epochs: 2 } as const;
    expect(ratesOf(6, { learning_rate: 1 }, linear)).toEqual([0.5, 1, 1, 2 / 3, 1 / 3, 0].map((rate) => expect.closeTo(rate, 12)));
    expect(ratesOf(10, { learning_rate: 1, batch_size: 1 }, { warmup_ratio: 0.29, min_learning_rate: 0.5 })).toEqual([
      0.75, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ]);
  });

  it.each([
    ["a list of rates and a schedule", { learning_rate: [1] }, { learning_rate_schedule: "linear" }, /a list.*The list is the schedule/],
    ["two kinds of warm-up", null, { warmup_steps: 1, warmup_ratio: 0.1 }, /`warmup_steps` or `warmup_ratio`, got both/],
    ["a lowest rate above the highest", { learning_rate: 1 }, { min_learning_rate: 2 }, /at most the `learning_rate` of 1, got 2/],
    [
      "a lowest rate of a rate that never moves",
      { learning_rate: 1 },
      { min_learning_rate: 0.5 },
      /`min_learning_rate`, which has no effect/,
    ],
    [
      "a lowest rate beside a warm-up of no steps",
      { learning_rate: 1 },
      { min_learning_rate: 0.5, warmup_steps: 0, learning_rate_schedule: "constant" },
      /`min_learning_rate`, which has no effect/,
    ],
    ["two sources of validation", null, { validation_split: 0.5, validation_data_url: "x" }, /got both/],
    ["measurements of nothing", null, { validation_every: 3 }, /no effect alone/],
    ["metric logging", { metric_logging: { enabled: true } }, null, /`metric_logging` is not supported/],
  ] as const)("rejects %s", (_, config, experimental, message) => {
    expect(() => planSft(4, config as Parameters<typeof planSft>[1], experimental)).toThrow(message);
  });

  it("holds out at least one and not all examples, and validates after each epoch or every so many steps, and at the end", () => {
    const plan = planSft(10, { batch_size: 3 }, { validation_split: 0.2, epochs: 2, shuffle_seed: 5 });
    expect(plan.heldOut).toHaveLength(2);
    const steps = [...plan.steps()];
    const trained = steps.filter(({ epoch }) => epoch === 1).flatMap(({ examples }) => examples);
    expect([...trained, ...plan.heldOut].toSorted((a, b) => a - b)).toEqual(Array.from({ length: 10 }, (__, index) => index));
    expect(steps.map(({ validates }) => validates)).toEqual([false, false, true, false, false, true]);
    expect(planSft(10, null, { validation_split: 0.2, shuffle_seed: 6 }).heldOut).not.toEqual(plan.heldOut);
    const every = planSft(10, { batch_size: 1 }, { validation_split: 0.01, validation_every: 4 });
    expect(every.heldOut).toHaveLength(1);
    expect([...every.steps()].map(({ validates }) => validates)).toEqual([false, false, false, true, false, false, false, true, true]);
    expect(planSft(2, null, { validation_split: 0.99 }).heldOut).toHaveLength(1);
    expect(() => planSft(1, null, { validation_split: 0.5 })).toThrow(/at least two examples/);
  });

  it("computes steps lazily from any start, and rejects more than a million steps", () => {
    const plan = planSft(100_000, { batch_size: 100, learning_rate: 1 }, { epochs: 1000, learning_rate_schedule: "linear" });
    expect(plan.stepCount).toBe(1_000_000);
    const [last] = plan.steps(999_999);
    expect(last).toMatchObject({ epoch: 999, adam: { learningRate: 0 }, validates: true });
    expect(last?.examples).toEqual(Array.from({ length: 100 }, (_, index) => 99_900 + index));
    expect([...plan.steps(1_000_000)]).toEqual([]);
    expect(() => planSft(50_000, { batch_size: 1 }, { epochs: 1000 })).toThrow(/at most 1000000 optimizer steps, got 50000000/);
  });

  it("rejects an empty data set", () => {
    expect(() => planSft(0)).toThrow(/at least one example/);
  });

  propertyTest.prop([fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 3 }), fc.maxSafeInteger()])(
    "takes every example once per epoch, in an order that depends only on seed and epoch",
    (count, batchSize, epochs, seed) => {
      const { stepCount, steps: from } = planSft(count, { batch_size: batchSize }, { epochs, shuffle_seed: seed });
      const steps = [...from()];
      expect(steps).toHaveLength(stepCount);
      // A job resumed after a crash has the same steps.
      const [first] = from(Math.floor(stepCount / 2));
      expect(first).toEqual(steps[Math.floor(stepCount / 2)]);
      for (let epoch = 0; epoch < epochs; epoch++) {
        const order = steps.filter((step) => step.epoch === epoch).flatMap((step) => step.examples);
        expect(order).toEqual(shuffledIndices(count, BigInt(seed), epoch));
        expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, index) => index));
      }
    },
  );

  it("shuffles uniformly, with another order for another seed or epoch", () => {
    const orders = [shuffledIndices(50, 1n, 0), shuffledIndices(50, 1n, 1), shuffledIndices(50, 2n, 0)].map(String);
    expect(new Set(orders).size).toBe(3);
    // Every position is reached from everywhere: the mean final place of the first example over many seeds is the middle.
    const places = Array.from({ length: 400 }, (_, seed) => shuffledIndices(11, BigInt(seed), 0).indexOf(0));
    expect(Math.abs(places.reduce((sum, place) => sum + place, 0) / 400 - 5)).toBeLessThan(5 * (3.17 / 20));
  });
});
