import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError, UnsupportedError } from "../../src/base/errors.ts";
import { tokenLoss } from "../../src/engine/token-loss.ts";
import { buildRlBatch, checkRlConfig } from "../../src/learner/index.ts";
import { rlConfig, type RlConfig } from "../../src/base/schema/index.ts";
import { preflight } from "../../src/base/trajectory/index.ts";
import { choice, group } from "./helpers.ts";

const limits = { contextLength: 64 };

interface PackVectors {
  readonly group: readonly {
    readonly token_ids: readonly number[];
    readonly assistant_mask: readonly number[];
    readonly logprobs: readonly (number | null)[];
    readonly reward: number;
  }[];
  readonly cases: Readonly<
    Record<string, { readonly advantage_balance: number; readonly advantages: readonly number[]; readonly weights: readonly number[] }>
  >;
}
const { pack } = JSON.parse(readFileSync(new URL("fixtures/rl-vectors.json", import.meta.url), "utf8")) as { pack: PackVectors };

function referenceGroup() {
  return group(
    ...pack.group.map(({ token_ids: ids, assistant_mask: mask, logprobs, reward }) => {
      const start = mask.indexOf(1);
      return { reward, choices: [choice(ids.slice(0, start), ids.slice(start), logprobs.slice(start) as number[])] };
    }),
  );
}

describe("buildRlBatch", () => {
  it.each(Object.entries(pack.cases))("agrees with the reference vectors: %s", (_, expected) => {
    const { rows } = buildRlBatch([referenceGroup()], { advantage_balance: expected.advantage_balance }, limits);
    // The third trajectory has the mean reward and no row. The reference divides by the trained tokens in its loss, we in the weights.
    expect(rows.map((row) => [...row.tokens])).toEqual([pack.group[0]?.token_ids, pack.group[1]?.token_ids]);
    for (const [index, row] of rows.entries()) {
      for (const [at, bit] of (pack.group[index]?.assistant_mask ?? []).entries()) {
        expect(row.weights[at]).toBeCloseTo((bit * (expected.weights[index] as number)) / 5, 6);
        expect(row.advantages?.[at]).toBeCloseTo(bit * (expected.advantages[index] as number), 6);
        expect(row.logprobs?.[at]).toBe(bit === 1 ? Math.fround(pack.group[index]?.logprobs[at] as number) : Number.NaN);
      }
    }
  });

  it("has weights that sum to the reference's loss", () => {
    const { rows, loss } = buildRlBatch([referenceGroup()], null, limits);
    const expected = pack.cases["packed_seq16"];
    let ours = 0;
    let theirs = 0;
    for (const [index, row] of rows.entries()) {
      for (const at of row.tokens.keys()) {
        if (row.weights[at] === 0) continue;
        const oldLogprob = pack.group[index]?.logprobs[at] as number;
        const { value } = tokenLoss(loss, { newLogprob: oldLogprob - 0.1, oldLogprob, advantage: expected?.advantages[index] as number });
        ours += (row.weights[at] as number) * value;
        theirs += ((expected?.weights[index] as number) * value) / 5;
      }
    }
    expect(ours).toBeCloseTo(theirs, 6);
    expect(Math.abs(theirs)).toBeGreaterThan(0.01);
  });

  it("gives each history its own rows, and each trajectory the same weight", () => {
    const { rows, metrics } = buildRlBatch(
      [
        group(
          { reward: 1, choices: [choice([1], [2, 3]), choice([1, 2, 3, 4], [5])], extra: [[choice([9], [8, 7])]] },
          { reward: 0, choices: [choice([1], [2])] },
        ),
      ],
      {},
      limits,
    );
    expect(rows.map((row) => [...row.tokens])).toEqual([
      [1, 2, 3, 4, 5],
      [9, 8, 7],
      [1, 2],
    ]);
    const sums = rows.map((row) => row.weights.reduce((sum, weight) => sum + weight, 0));
    expect((sums[0] as number) + (sums[1] as number)).toBeCloseTo(sums[2] as number, 5);
    expect(metrics).toMatchObject({
      "data/merged_turns": 1,
      "data/drifted_turns": 0,
      "data/sequences": 3,
      "tokens/trained": 6,
      "tokens/total": 10,
    });
  });

  it("gives every token the same weight with the reduction `token_mean`", () => {
    const pair = group({ reward: 1, choices: [choice([1], [2, 3, 4])] }, { reward: 0, choices: [choice([1], [5])] });
    const { rows } = buildRlBatch([pair], { loss_reduction: "token_mean" }, limits);
    expect(rows.map((row) => [...row.weights])).toEqual([
      [0, 0.25, 0.25, 0.25],
      [0, 0.25],
    ]);
    expect(rows.map((row) => row.advantages?.[1])).toEqual([1, -1]);
  });

  it("subtracts the selected baseline and divides by the selected deviation", () => {
    // Groups of two and of three, so that the factor G / (G − 1) does not cancel in the normalisation.
    const groups = [
      group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] }),
      group(...[1, 0, 0].map((reward, index) => ({ reward, choices: [choice([1], [4 + index])] }))),
    ];
    const advantages = (config: object) => buildRlBatch(groups, config, limits).rows.map((row) => row.advantages?.[1] as number);
    const proportional = (actual: readonly number[], expected: readonly number[]) =>
      actual.forEach((value, index) => expect(value / actual[0]!).toBeCloseTo(expected[index]! / expected[0]!, 5));
    proportional(advantages({ scale_rewards: false }), [1 / 2, -1 / 2, 2 / 3, -1 / 3, -1 / 3]);
    proportional(advantages({ scale_rewards: false, advantage_baseline: "leave_one_out" }), [1, -1, 1, -1 / 2, -1 / 2]);
    const [two, three] = [Math.SQRT1_2, Math.sqrt(1 / 3)];
    proportional(advantages({ advantage_deviation: "sample" }), [0.5 / two, -0.5 / two, 2 / 3 / three, -1 / 3 / three, -1 / 3 / three]);
  });

  it("ignores rounding differences of rewards, except with `compat: art`", () => {
    const rewards = [0.1 + 0.2, 0.3, 0.3];
    const noise = group(...rewards.map((reward, index) => ({ reward, choices: [choice([1], [2 + index])] })));
    expect(() => buildRlBatch([noise], {}, limits)).toThrow(/all equal in 1 of 1 groups/);
    expect(buildRlBatch([noise], { compat: "art" }, limits).rows.length).toBeGreaterThan(0);
  });

  it("reports the metrics of the batch", () => {
    const long = Array.from({ length: 70 }, (_, index) => index);
    const { rows, metrics } = buildRlBatch(
      [
        group(
          { reward: 1, choices: [choice([1], [2])] },
          { reward: 0, choices: [choice([1], [3]), choice([5], [6])] },
          { reward: 1, choices: [choice(long, [1, 2])] },
        ),
        group({ reward: 0.5, choices: [choice([1], [2])] }, { reward: 0.5, choices: [choice([1], [2])] }),
      ],
      {},
      limits,
    );
    expect(rows).toHaveLength(3);
    expect(metrics).toMatchObject({
      "reward/mean": 3 / 5,
      "reward/std": Math.sqrt(2 / 9) / 2,
      "advantage/zero_groups": 1,
      "data/groups": 2,
      "data/trajectories": 5,
      "data/trainable_trajectories": 2,
      "data/drifted_turns": 1,
      "data/dropped_sequences": 1,
      "tokens/dropped": 2,
      "tokens/trained": 3,
    });
  });

  it("keeps a sequence of exactly the context length", () => {
    const pair = group({ reward: 1, choices: [choice([1, 2], [3])] }, { reward: 0, choices: [choice([1, 2], [4])] });
    expect(buildRlBatch([pair], {}, { contextLength: 3 }).rows).toHaveLength(2);
    expect(() => buildRlBatch([pair], {}, { contextLength: 2 })).toThrow(/longer than the model's context of 2 tokens/);
  });

  it("does not depend on the order of groups, except for the order of rows", () => {
    const first = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] });
    const second = group({ reward: 7, choices: [choice([4], [5, 6])] }, { reward: 2, choices: [choice([4], [7])] });
    const [a, b, c, d] = buildRlBatch([first, second], {}, limits).rows;
    expect(buildRlBatch([second, first], {}, limits).rows).toEqual([c, d, a, b]);
  });

  it.each([
    ["no groups", [], /no trajectory/],
    ["an empty group", [group()], /no trajectory/],
    [
      "constant rewards",
      [group({ reward: 1, choices: [choice([1], [2])] }, { reward: 1, choices: [choice([1], [3])] })],
      /all equal in 1 of 1 groups/,
    ],
    ["groups of one", [group({ reward: 1, choices: [choice([1], [2])] })], /all equal in 1 of 1 groups/],
  ])("rejects a batch that would train nothing, with the reasons: %s", (_, groups, message) => {
    const build = () => buildRlBatch(groups, {}, limits);
    expect(build).toThrow(ArgumentError);
    expect(build).toThrow(message);
    expect(build).toThrow(expect.objectContaining({ param: "trajectory_groups" }));
  });

  it("rejects a balance that removes every advantage", () => {
    const only = group({ reward: 1, choices: [] }, { reward: 0, choices: [choice([1], [2])] }, { reward: 1, choices: [] });
    expect(() => buildRlBatch([only], { advantage_balance: 1 }, limits)).toThrow(
      /2 of 3 trajectories have no sampled turn; `advantage_balance` takes away/,
    );
    expect(buildRlBatch([only], { advantage_balance: 0.5 }, limits).rows).toHaveLength(1);
  });

  it("rejects an untrainable choice, also in a constant group", () => {
    const constant = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 1, choices: [{ ...choice([1], [3]), logprobs: null }] });
    expect(() => buildRlBatch([constant], {}, limits)).toThrow(
      /trajectory_groups\.0\.trajectories\.1\.messages_and_choices\.1: A choice has no log-prob/,
    );
  });

  it("rejects a group without sampled turns among other groups", () => {
    const good = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] });
    const said = group({ reward: 1, choices: [] }, { reward: 0, choices: [{ role: "assistant", content: "x" }] });
    const build = () => buildRlBatch([good, said], {}, limits);
    expect(build).toThrow(ArgumentError);
    expect(build).toThrow("trajectory_groups.1: A group has no sampled turn");
  });

  it("rejects an untrainable turn with the message of preflight", () => {
    for (const change of [{ logprobs: null }, { token_ids: null }, { token_ids: [3, 4] }, { prompt_token_ids: [] }]) {
      const mixed = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [{ ...choice([1], [3]), ...change }] });
      const fatal = preflight([mixed]).find(({ severity }) => severity === "fatal");
      expect(fatal?.examples).toEqual(["trajectory_groups.0.trajectories.1.messages_and_choices.1"]);
      expect(() => buildRlBatch([mixed], {}, limits)).toThrow(`${fatal?.examples[0]}: ${fatal?.message}`);
    }
  });

  it("rejects token ids outside the vocabulary and rewards that are not finite", () => {
    const pair = group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [600])] });
    expect(() => buildRlBatch([pair], {}, { ...limits, vocabularySize: 512 })).toThrow(DataError);
    expect(() => buildRlBatch([pair], {}, { ...limits, vocabularySize: 512 })).toThrow(/trajectories\.1.*token id 600/);
    const broken = { ...pair, trajectories: pair.trajectories.map((trajectory) => ({ ...trajectory, reward: Number.NaN })) };
    expect(() => buildRlBatch([broken], {}, limits)).toThrow(/trajectories\.0\.reward/);
  });
});

describe("checkRlConfig", () => {
  it("fills in every default", () => {
    const expected = {
      loss: { kind: "cispo", epsilon: 1, epsilonHigh: 4 },
      objective: null,
      adam: { learningRate: 5e-6, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0.1 },
      reference: null,
      advantages: { scale: true, baseline: "mean", deviation: "population", exactZero: false },
      allowsUnknownLogprobs: false,
      turnRewards: false,
      advantageBalance: 0,
      reduction: "trajectory_mean",
      advantageScope: "batch",
      masksTruncated: false,
    };
    expect(checkRlConfig(null)).toEqual(expected);
    expect(checkRlConfig(undefined)).toEqual(expected);
    expect(checkRlConfig(Object.fromEntries(Object.keys(rlConfig.shape).map((name) => [name, null])))).toEqual(expected);
  });

  it("converts the settings that it accepts", () => {
    const given = {
      learning_rate: 1e-3,
      max_grad_norm: 0,
      weight_decay: 0.1,
      adam_beta1: 0.5,
      adam_beta2: 0.6,
      advantage_baseline: "leave_one_out",
      advantage_deviation: "sample",
      loss_reduction: "token_mean",
      advantage_balance: -1,
    } as const;
    expect(checkRlConfig(given)).toMatchObject({
      adam: { learningRate: 1e-3, beta1: 0.5, beta2: 0.6, weightDecay: 0.1, maxGradNorm: 0 },
      advantages: { scale: true, baseline: "leave_one_out", deviation: "sample" },
      advantageBalance: -1,
      reduction: "token_mean",
    });
    expect(checkRlConfig({ scale_rewards: false }).advantages.scale).toBe(false);
    expect(checkRlConfig({ normalize_advantages: false }).advantages.scale).toBe(false);
  });

  it.each([{ scale_rewards: false }, { normalize_advantages: false }])("rejects a deviation with %j", (config) => {
    expect(() => checkRlConfig({ ...config, advantage_deviation: "sample" })).toThrow(
      expect.objectContaining({ code: "E_ARGUMENT", param: "experimental_config.advantage_deviation" }),
    );
  });

  it("accepts neutral values", () => {
    const neutral = {
      importance_sampling_level: "token",
      model_k2_tau: 0,
      kimi_k2_tau: 0,
      mask_prob_ratio: false,
      precalculate_logprobs: false,
      allow_training_without_logprobs: false,
      kl_penalty_coef: 0,
      kl_penalty_source: "current_learner",
      entropy_coef: 0,
      mask_truncated: false,
      advantage_scope: "batch",
      logprob_calculation_chunk_size: 1024,
      num_trajectories_learning_rate_multiplier_power: 0,
      plot_tensors: false,
      scale_learning_rate_by_reward_std_dev: false,
    } as const;
    expect(checkRlConfig(neutral)).toEqual(checkRlConfig(null));
  });

  const refused = {
    kl_ref_adapter_path: "x",
    logprob_calculation_chunk_size: 512,
    num_trajectories_learning_rate_multiplier_power: 0.5,
    packed_sequence_length: 2048,
    plot_tensors: true,
    scale_learning_rate_by_reward_std_dev: true,
  } as const;

  it.each(Object.entries(refused))("rejects %s: %j by name", (name, value) => {
    const check = () => checkRlConfig({ [name]: value });
    expect(rlConfig.safeParse({ [name]: value }).success).toBe(true);
    expect(check).toThrow(UnsupportedError);
    expect(check).toThrow(
      expect.objectContaining({ param: `experimental_config.${name}`, message: expect.stringContaining(`\`${name}\``) }),
    );
  });

  /** A value with an effect for every supported setting, with the other settings that it needs. */
  const supported: Record<string, RlConfig> = {
    learning_rate: { learning_rate: 1 },
    epsilon: { epsilon: 0.3 },
    epsilon_high: { epsilon_high: 0.3 },
    ppo: { ppo: true },
    loss_fn: { loss_fn: "ppo" },
    scale_rewards: { scale_rewards: false },
    normalize_advantages: { normalize_advantages: false },
    advantage_balance: { advantage_balance: 0.5 },
    max_grad_norm: { max_grad_norm: 1 },
    weight_decay: { weight_decay: 0.1 },
    adam_beta1: { adam_beta1: 0.5 },
    adam_beta2: { adam_beta2: 0.5 },
    allow_training_without_logprobs: { allow_training_without_logprobs: true },
    turn_rewards: { turn_rewards: true },
    kl_penalty_coef: { kl_penalty_coef: 0.1 },
    kl_penalty_source: { kl_penalty_coef: 0.1, kl_penalty_source: "current_learner" },
    kl_penalty_reference_step: { kl_penalty_coef: 0.1, kl_penalty_reference_step: 1 },
    kl_penalty_step_lag: { kl_penalty_coef: 0.1, kl_penalty_step_lag: 1 },
    advantage_baseline: { advantage_baseline: "leave_one_out" },
    advantage_deviation: { advantage_deviation: "sample" },
    loss_reduction: { loss_reduction: "token_mean" },
    loss_normalizer: { loss_reduction: "constant", loss_normalizer: 64 },
    advantage_scope: { advantage_scope: "environment" },
    entropy_coef: { entropy_coef: 0.01 },
    mask_truncated: { mask_truncated: true },
    importance_sampling_level: { importance_sampling_level: "sequence" },
    model_k2_tau: { model_k2_tau: 0.5 },
    kimi_k2_tau: { kimi_k2_tau: 0.5 },
    mask_prob_ratio: { mask_prob_ratio: true },
    max_negative_advantage_importance_sampling_weight: { max_negative_advantage_importance_sampling_weight: 1.1 },
    precalculate_logprobs: { precalculate_logprobs: true },
    truncated_importance_sampling: { truncated_importance_sampling: 2 },
    compat: { compat: "art" },
  };

  it.each(Object.entries(supported))("supports %s: it changes the settings", (name, config) => {
    const { [name as keyof RlConfig]: _, ...others } = config;
    // A constant reduction needs its normalizer; another normalizer gives other settings.
    const neutral = name === "loss_normalizer" ? { ...others, loss_normalizer: 1 } : others;
    expect(checkRlConfig(config)).not.toEqual(checkRlConfig(neutral));
  });

  it("supports or rejects every setting of the schema; `token_report` and `priority` are read elsewhere", () => {
    expect([...Object.keys(supported), ...Object.keys(refused), "token_report", "priority"].toSorted()).toEqual(
      Object.keys(rlConfig.shape).toSorted(),
    );
  });

  const off = {
    kind: "cispo",
    epsilon: 1,
    epsilonHigh: 4,
    level: "token",
    tau: 0,
    masksRatio: false,
    maxNegativeRatio: null,
    truncation: null,
    precalculates: false,
    kl: null,
    compat: null,
  };

  it.each([
    [{ importance_sampling_level: "sequence" }, { level: "sequence" }],
    [{ model_k2_tau: 0.5 }, { tau: 0.5 }],
    [{ kimi_k2_tau: 0.5, model_k2_tau: 0.5 }, { tau: 0.5 }],
    [
      { mask_prob_ratio: true, epsilon: 0.2 },
      { masksRatio: true, epsilon: 0.2 },
    ],
    [{ max_negative_advantage_importance_sampling_weight: 1.1 }, { maxNegativeRatio: 1.1 }],
    [{ precalculate_logprobs: true }, { precalculates: true }],
    [
      { truncated_importance_sampling: 2, ppo: true, compat: "art" },
      { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.2, truncation: 2, compat: "art" },
    ],
  ] as const)("reads %j, which the engine's own losses lack", (config, expected) => {
    expect(checkRlConfig(config).objective).toEqual({ ...off, ...expected });
  });

  it.each([
    [{ kl_penalty_coef: 0.1 }, "sample", { kind: "base" }],
    [
      { kl_penalty_coef: 0.1, kl_penalty_source: "current_learner", kl_penalty_reference_step: 0 },
      "current_learner",
      { kind: "step", step: 0 },
    ],
    [{ kl_penalty_coef: 0.1, kl_penalty_step_lag: 3 }, "sample", { kind: "lag", steps: 3 }],
  ] as const)("reads the penalty and its reference: %j", (config, source, reference) => {
    const settings = checkRlConfig(config);
    expect(settings.objective).toEqual({ ...off, kl: { coefficient: 0.1, source } });
    expect(settings.reference).toEqual(reference);
  });

  it.each([
    [{ kl_penalty_reference_step: 1 }, "experimental_config.kl_penalty_reference_step"],
    [{ kl_penalty_coef: 0, kl_penalty_step_lag: 1 }, "experimental_config.kl_penalty_step_lag"],
    [{ kl_penalty_coef: 1, kl_penalty_reference_step: 1, kl_penalty_step_lag: 1 }, "experimental_config.kl_penalty_step_lag"],
  ])("rejects a reference without a penalty, and two references: %j", (config, param) => {
    expect(() => checkRlConfig(config)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }));
  });

  it("rejects two names of one setting with different values", () => {
    expect(() => checkRlConfig({ model_k2_tau: 0.5, kimi_k2_tau: 0 })).toThrow(/`model_k2_tau` and `kimi_k2_tau` to agree, got 0.5 and 0/);
    expect(() => checkRlConfig({ scale_rewards: true, normalize_advantages: false })).toThrow(ArgumentError);
    expect(checkRlConfig({ scale_rewards: false, normalize_advantages: false }).advantages.scale).toBe(false);
  });
});
