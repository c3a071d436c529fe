import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { logitsLoss } from "../../src/engine/token-loss.ts";
import { ArgumentError, DataError } from "../../src/base/errors.ts";
import { buildRlBatch, checkRlConfig, normalizeBatch } from "../../src/learner/index.ts";
import { rlConfig, type TrajectoryGroup } from "../../src/base/schema/index.ts";
import { choice, group } from "./helpers.ts";

const limits = { contextLength: 64 };
const constant = { loss_reduction: "constant", loss_normalizer: 10, scale_rewards: false } as const;

describe("the entropy bonus", () => {
  it("is part of the loss of the engine, and of the objective's loss", () => {
    expect(checkRlConfig({ entropy_coef: 0.01 }).loss).toEqual({ kind: "cispo", epsilon: 1, epsilonHigh: 4, entropyCoefficient: 0.01 });
    expect(checkRlConfig({ entropy_coef: 0.01 }).objective).toBeNull();
    expect(checkRlConfig({ entropy_coef: 0.01, model_k2_tau: 1 }).objective).toMatchObject({ entropyCoefficient: 0.01 });
    expect(rlConfig.safeParse({ entropy_coef: -0.1 }).success).toBe(false);
  });

  const logits = fc.array(fc.double({ min: -4, max: 4, noNaN: true }), { minLength: 2, maxLength: 6 });
  propertyTest.prop([logits, fc.double({ min: 0, max: 2, noNaN: true }), fc.double({ min: -2, max: 2, noNaN: true })])(
    "has the gradient of finite differences by every logit",
    (values, entropyCoefficient, advantage) => {
      const loss = { kind: "ppo", epsilon: 9, epsilonHigh: 9, entropyCoefficient } as const;
      const at = (each: readonly number[]) => logitsLoss(loss, { logits: Float64Array.from(each), target: 1, oldLogprob: -1, advantage });
      const { gradient } = at(values);
      const step = 1e-5;
      for (const index of values.keys()) {
        const moved = (by: number) => at(values.map((value, v) => (v === index ? value + by : value))).value;
        expect(Math.abs((moved(step) - moved(-step)) / (2 * step) - gradient[index]!)).toBeLessThan(1e-6);
      }
    },
  );
});

describe('loss_reduction "constant"', () => {
  it("weighs every token by 1 / (trajectories · loss_normalizer), untrained trajectories included", () => {
    const groups = [
      group({ reward: 1, choices: [choice([1], [2, 3, 4])] }, { reward: 0, choices: [choice([1], [5])] }),
      group({ reward: 2, choices: [choice([1], [6])] }, { reward: 2, choices: [choice([1], [7])] }),
    ];
    const { rows } = buildRlBatch(groups, constant, limits);
    expect(rows.map(({ weights }) => [...weights])).toEqual([
      [0, Math.fround(1 / 40), Math.fround(1 / 40), Math.fround(1 / 40)],
      [0, Math.fround(1 / 40)],
    ]);
    expect(rows.map(({ advantages }) => [...advantages!])).toEqual([
      [0, 0.5, 0.5, 0.5],
      [0, -0.5],
    ]);
  });

  it("divides by the deviation unless scale_rewards is false, and applies the balance", () => {
    const pair = group({ reward: 3, choices: [choice([1], [2])] }, { reward: 1, choices: [choice([1], [5])] });
    const advantages = (config: object) => buildRlBatch([pair], { ...constant, ...config }, limits).rows.map((row) => row.advantages![1]);
    expect(advantages({})).toEqual([1, -1]);
    expect(advantages({ advantage_balance: 0.75 })).toEqual([1, -0.25]);
    expect(advantages({ scale_rewards: true, advantage_deviation: "sample" })[0]).toBeCloseTo(1 / Math.SQRT2, 5);
  });

  it.each([
    [{ loss_reduction: "constant" }, "loss_normalizer", /Expected a `loss_normalizer`/],
    [{ loss_normalizer: 10 }, "loss_normalizer", /Expected no `loss_normalizer` unless/],
    [{ loss_reduction: "token_mean", loss_normalizer: 10 }, "loss_normalizer", /Expected no `loss_normalizer` unless/],
    [{ ...constant, advantage_scope: "environment" }, "advantage_scope", /Expected no `advantage_scope: "environment"`/],
  ] as const)("rejects %j by name", (config, name, message) => {
    const check = () => checkRlConfig(config);
    expect(check).toThrow(message);
    expect(check).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: `experimental_config.${name}` }));
  });

  it("rejects a normalizer that is not above 0", () => {
    for (const value of [0, -1]) expect(rlConfig.safeParse({ loss_reduction: "constant", loss_normalizer: value }).success).toBe(false);
  });
});

describe("mask_truncated", () => {
  const cut = { ...choice([1], [2]), finish_reason: "length" };
  const mixed = group(
    { reward: 1, choices: [choice([1], [3])] },
    { reward: 0, choices: [cut] },
    { reward: 0.5, choices: [choice([1], [4]), cut], extra: [] },
    { reward: 0, choices: [choice([1], [5])] },
  );

  it("does not train trajectories with a truncated turn in any history, but keeps their rewards in the baseline", () => {
    const inHistory = group({ reward: 1, choices: [choice([1], [3])], extra: [[cut]] }, { reward: 0, choices: [choice([1], [5])] });
    expect(buildRlBatch([inHistory], { mask_truncated: true }, limits).sources.map(({ trajectory }) => trajectory)).toEqual([1]);
    const { sources, rows, metrics } = buildRlBatch([mixed], { ...constant, mask_truncated: true }, limits);
    expect(sources.map(({ trajectory }) => trajectory)).toEqual([0, 3]);
    // The mean of the rewards is 3/8, with the truncated ones.
    expect(rows.map(({ advantages }) => advantages![1])).toEqual([0.625, -0.375]);
    expect(metrics).toMatchObject({ "data/truncated_trajectories": 2, "data/trainable_trajectories": 2, "data/trajectories": 4 });
  });

  it("is off by default, and then counts nothing", () => {
    const { sources, metrics } = buildRlBatch([mixed], {}, limits);
    expect(new Set(sources.map(({ trajectory }) => trajectory))).toEqual(new Set([0, 1, 2, 3]));
    expect(metrics).not.toHaveProperty("data/truncated_trajectories");
  });

  it("rejects a batch in which nothing else is left, with the reason", () => {
    const only = group({ reward: 1, choices: [cut] }, { reward: 0, choices: [cut] });
    expect(() => buildRlBatch([only], { mask_truncated: true }, limits)).toThrow(
      /2 of 2 trajectories have a turn that ended at the token limit, and `mask_truncated` excludes them/,
    );
  });
});

/** A choice with token advantages and weights. */
function valued(sampled: readonly number[], advantages: readonly number[] | null, weights: readonly number[] | null = null) {
  return { ...choice([1], sampled), token_advantages: advantages, token_weights: weights };
}

describe("token advantages", () => {
  const equal = group({ reward: 1, choices: [valued([2, 3], [1, -3])] }, { reward: 1, choices: [valued([4], [0])] });

  it("replace the advantages from rewards, also in a group with equal rewards; a trajectory with zeros alone has no row", () => {
    const { rows, sources } = buildRlBatch([equal], constant, limits);
    expect(sources.map(({ trajectory }) => trajectory)).toEqual([0]);
    expect([...rows[0]!.advantages!]).toEqual([0, 1, -3]);
    const normalized = buildRlBatch([equal], {}, limits).rows[0]!.advantages!;
    expect([...normalized]).toEqual([0, 0.5, -1.5]);
  });

  it("of several rows belong to their own tokens", () => {
    const turns = [choice([1], [2, 3]), choice([1, 2, 3, 9], [4]), choice([8], [5])];
    const supplied = turns.map((each, k) => ({ ...each, token_advantages: each.token_ids!.map((_, t) => 10 * k + t + 1) }));
    const one = group({ reward: 0, choices: supplied });
    const { rows } = buildRlBatch([one], constant, limits);
    expect(rows.map(({ advantages }) => [...advantages!])).toEqual([
      [0, 1, 2, 0, 11],
      [0, 21],
    ]);
  });

  it("keep the group-relative advantages of other groups", () => {
    const other = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] });
    expect(buildRlBatch([equal, other], constant, limits).rows.map((row) => row.advantages![1])).toEqual([1, 0.5, -0.5]);
  });

  it("of 0 in every group are a batch with nothing to train", () => {
    const zeros = group({ reward: 1, choices: [valued([2], [0])] }, { reward: 0, choices: [valued([3], [0])] });
    expect(() => buildRlBatch([zeros], {}, limits)).toThrow(
      /no trained token has an advantage other than 0 in 1 of 1 groups with `token_advantages`/,
    );
  });

  const rejected: readonly [string, TrajectoryGroup, string, RegExp][] = [
    ["too few advantages", group({ reward: 1, choices: [valued([2, 3], [1])] }), "0.messages_and_choices.1", /has not as many/],
    ["too many weights", group({ reward: 1, choices: [valued([2], null, [1, 1])] }), "0.messages_and_choices.1", /has not as many/],
    [
      "advantages without token ids",
      group({ reward: 1, choices: [{ ...valued([2], [1]), token_ids: null }] }),
      "0.messages_and_choices.1",
      /has not as many/,
    ],
  ];
  it.each(rejected)("are rejected: %s", (_, wrong, place, message) => {
    const build = () => buildRlBatch([wrong], {}, limits);
    expect(build).toThrow(DataError);
    expect(build).toThrow(message);
    expect(build).toThrow(expect.objectContaining({ param: `trajectory_groups.0.trajectories.${place}` }));
  });

  it.each([
    ["an advantage that is not finite", { token_advantages: [Number.POSITIVE_INFINITY] }],
    ["a negative weight", { token_weights: [-1] }],
    ["a weight that is not a number", { token_weights: [Number.NaN] }],
  ])("are rejected: %s", (_, change) => {
    const { trajectories, ...rest } = group({ reward: 1, choices: [] });
    const wrong = { ...rest, trajectories: [{ ...trajectories[0]!, messages_and_choices: [{ ...choice([1], [2]), ...change }] }] };
    expect(() => buildRlBatch([wrong], {}, limits)).toThrow(/is not a finite number, or a weight is negative/);
  });

  it("are rejected unless all choices of a group have them", () => {
    const inTrajectory = group({ reward: 1, choices: [valued([2], [1]), choice([1], [3])] });
    const inGroup = group({ reward: 1, choices: [valued([2], [1])] }, { reward: 0, choices: [choice([1], [3])] });
    for (const wrong of [inTrajectory, inGroup]) {
      const build = () => buildRlBatch([wrong], {}, limits);
      expect(build).toThrow(DataError);
      expect(build).toThrow(/trajectory_groups\.0: Some choices of a group have `token_advantages` and others have none/);
    }
  });

  it("are rejected in a job with turn_rewards", () => {
    const build = () => buildRlBatch([equal], { turn_rewards: true }, limits);
    expect(build).toThrow(ArgumentError);
    expect(build).toThrow(expect.objectContaining({ param: "experimental_config.turn_rewards" }));
  });
});

describe("token weights", () => {
  it("multiply the weight of a token; tokens with weight 0 are not trained and do not count", () => {
    const weighted = group(
      { reward: 1, choices: [{ ...choice([1], [2, 3, 4]), token_weights: [0, 2, 0.5] }] },
      { reward: 0, choices: [choice([1], [5, 6])] },
    );
    const { rows, metrics } = buildRlBatch([weighted], {}, limits);
    expect(metrics["tokens/trained"]).toBe(4);
    // Both trajectories have two trained tokens, so the weight of a token is 1/4 before the factor.
    expect([...rows[0]!.weights]).toEqual([0, 0, 0.5, 0.125]);
    expect([...rows[1]!.weights]).toEqual([0, 0.25, 0.25]);
    expect(rows[0]!.advantages![1]).toBe(0);
  });

  it("of 1 change nothing", () => {
    const build = (extra: object) =>
      buildRlBatch(
        [group({ reward: 1, choices: [{ ...choice([1], [2, 3]), ...extra }] }, { reward: 0, choices: [choice([1], [5])] })],
        {},
        limits,
      );
    expect(build({ token_weights: [1, 1] })).toEqual(build({}));
  });

  it("count the remaining tokens of a turn with turn_rewards", () => {
    const turn = { ...choice([1], [2, 3]), reward: 1, token_weights: [1, 0] };
    const built = buildRlBatch(
      [group({ reward: 1, choices: [turn] }, { reward: 0, choices: [choice([1], [5])] })],
      { turn_rewards: true },
      limits,
    );
    expect(built.rows.map(({ weights }) => [...weights])).toEqual([
      [0, 0.5, 0],
      [0, 0.5],
    ]);
    expect(built.rows.map(({ advantages }) => advantages![1])).toEqual([1, -1]);
  });

  it("of 0 for every token leave nothing to train, with the reason", () => {
    const none = { ...choice([1], [2]), token_weights: [0] };
    const only = group({ reward: 1, choices: [none] }, { reward: 0, choices: [none] });
    expect(() => buildRlBatch([only], {}, limits)).toThrow(/2 of 2 trajectories have `token_weights` of 0 for every token/);
  });

  it("of 0 for a row drop that row alone", () => {
    const excluded = { ...choice([8], [5]), token_weights: [0] };
    const built = buildRlBatch(
      [group({ reward: 1, choices: [choice([1], [2]), excluded] }, { reward: 0, choices: [choice([1], [5])] })],
      {},
      limits,
    );
    expect(built.rows.map(({ tokens }) => [...tokens])).toEqual([
      [1, 2],
      [1, 5],
    ]);
  });
});

describe('advantage_scope "environment"', () => {
  const pair = (high: number, environment: unknown): TrajectoryGroup => ({
    ...group({ reward: high, choices: [choice([1], [2, 3])] }, { reward: 0, choices: [choice([1], [4])] }),
    metadata: environment === undefined ? {} : { environment: environment as string },
  });
  const advantagesOf = (groups: readonly TrajectoryGroup[], config: object) =>
    buildRlBatch(groups, { scale_rewards: false, ...config }, limits).rows.map((row) => row.advantages![1]!);

  it("normalizes each environment by itself, and groups without a name as one set", () => {
    const groups = [pair(1, "small"), pair(100, "large"), pair(2, undefined), pair(2, 7)];
    const scoped = advantagesOf(groups, { advantage_scope: "environment" });
    for (const advantage of scoped) expect(Math.abs(advantage)).toBeCloseTo(1, 6);
    const batch = advantagesOf(groups, {});
    expect(batch[2]! / batch[0]!).toBeCloseTo(100, 4);
  });

  it("equals the scope of the batch with a single environment", () => {
    const groups = [pair(1, "one"), pair(5, "one")];
    expect(advantagesOf(groups, { advantage_scope: "environment" })).toEqual(advantagesOf(groups, { advantage_scope: "batch" }));
  });

  const entry = fc.record({
    advantage: fc.double({ min: -50, max: 50, noNaN: true }).filter((value) => Math.abs(value) > 1e-3),
    tokens: fc.integer({ min: 1, max: 40 }),
    set: fc.constantFrom("a", "b", null),
  });
  propertyTest.prop([fc.array(entry, { minLength: 1, maxLength: 12 }), fc.constantFrom("trajectory_mean", "token_mean" as const)])(
    "gives every environment a mean of |A|·w of 1 over its own tokens",
    (entries, reduction) => {
      const normalized = normalizeBatch(entries, 0, reduction as "token_mean");
      for (const name of new Set(entries.map(({ set }) => set))) {
        let [sum, tokens] = [0, 0];
        for (const [index, { set, tokens: count }] of entries.entries()) {
          if (set !== name) continue;
          sum += count * Math.abs(normalized[index]!.advantage) * normalized[index]!.weight;
          tokens += count;
        }
        expect(sum / tokens).toBeCloseTo(1, 9);
      }
    },
  );
});
