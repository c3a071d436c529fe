import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError } from "../../src/base/errors.ts";
import { readPreferencePair } from "../../src/base/trajectory/preference-pair.ts";
import {
  pairSums,
  preferenceGradient,
  preferenceLoss,
  preferenceRows,
  preferenceSequences,
  type PreferenceObjective,
  type SequencePair,
  type TokenSequence,
} from "../../src/learner/index.ts";
import { sharedModel } from "../tokenizer/fixture.ts";

const { tokenizer } = await sharedModel();

const PLAIN: PreferenceObjective = { beta: 0.1, labelSmoothing: 0, normalizesLength: false };
const user = (content: string) => ({ role: "user", content });
const assistant = (content: string, more: object = {}) => ({ role: "assistant", content, ...more });

function sequence(tokens: readonly number[], mask: readonly number[]): TokenSequence {
  return { tokens: Int32Array.from(tokens), mask: Uint8Array.from(mask) };
}

const PAIRS: readonly SequencePair[] = [
  { chosen: sequence([1, 2, 3, 4], [0, 0, 1, 1]), rejected: sequence([1, 2, 5], [0, 0, 1]) },
  { chosen: sequence([1, 6], [0, 1]), rejected: sequence([1, 7, 8, 9], [0, 1, 0, 1]) },
];

const objective = fc.record({
  beta: fc.double({ min: 0.01, max: 2, noNaN: true }),
  labelSmoothing: fc.double({ min: 0, max: 0.49, noNaN: true }),
  normalizesLength: fc.boolean(),
});
const logprob = fc.double({ min: -20, max: 0, noNaN: true });

describe("preferenceLoss", () => {
  it("is log 2 with the reward 0 for a policy that equals the reference", () => {
    const same = { chosen: -3, rejected: -4 };
    const { loss, rewards, derivatives } = preferenceLoss(
      { policy: same, reference: same, tokens: { chosen: 2, rejected: 1 } },
      { ...PLAIN, labelSmoothing: 0.2 },
    );
    expect(loss).toBeCloseTo(Math.LN2, 14);
    expect(rewards).toEqual({ chosen: 0, rejected: 0 });
    // (ε − (1 − ε)) / 2 · β
    expect(derivatives.chosen).toBeCloseTo(-0.03, 14);
    expect(derivatives.rejected).toBeCloseTo(0.03, 14);
  });

  it("divides by the number of trained tokens with length normalization, per sequence", () => {
    const given = { policy: { chosen: -2, rejected: -6 }, reference: { chosen: -4, rejected: -3 }, tokens: { chosen: 2, rejected: 3 } };
    const { rewards, loss } = preferenceLoss(given, { ...PLAIN, normalizesLength: true });
    expect(rewards.chosen).toBeCloseTo(0.1, 14);
    expect(rewards.rejected).toBeCloseTo(-0.1, 14);
    expect(loss).toBeCloseTo(Math.log1p(Math.exp(-0.2)), 14);
  });

  it("stays finite for log-ratios that would overflow an exponential", () => {
    const given = (chosen: number) => ({
      policy: { chosen, rejected: 0 },
      reference: { chosen: 0, rejected: 0 },
      tokens: { chosen: 1, rejected: 1 },
    });
    expect(preferenceLoss(given(-1e5), PLAIN)).toMatchObject({ loss: 1e4, derivatives: { chosen: -0.1, rejected: 0.1 } });
    const won = preferenceLoss(given(1e5), PLAIN);
    expect(won.loss).toBe(0);
    expect(Math.abs(won.derivatives.chosen)).toBe(0);
  });

  propertyTest.prop([fc.array(logprob, { minLength: 4, maxLength: 4 }), objective])(
    "has the derivatives of finite differences",
    ([chosen, rejected, first, second], settings) => {
      const tokens = { chosen: 3, rejected: 5 };
      const at = (shift: { chosen: number; rejected: number }) =>
        preferenceLoss(
          {
            policy: { chosen: chosen! + shift.chosen, rejected: rejected! + shift.rejected },
            reference: { chosen: first!, rejected: second! },
            tokens,
          },
          settings,
        );
      const step = 1e-5;
      for (const side of ["chosen", "rejected"] as const) {
        const none = { chosen: 0, rejected: 0 };
        const slope = (at({ ...none, [side]: step }).loss - at({ ...none, [side]: -step }).loss) / (2 * step);
        expect(at(none).derivatives[side]).toBeCloseTo(slope, 7);
      }
    },
  );
});

describe("preferenceGradient", () => {
  const batch = preferenceRows(PAIRS);
  const reference = [
    { chosen: -2, rejected: -1 },
    { chosen: -1, rejected: -3 },
  ];

  it("builds two neighboring rows per pair with the weight 1 on trained tokens", () => {
    expect(batch.rows.map(({ tokens, weights }) => [[...tokens], [...weights]])).toEqual(
      PAIRS.flatMap(({ chosen, rejected }) => [chosen, rejected]).map(({ tokens, mask }) => [[...tokens], [...mask]]),
    );
    expect(batch).toMatchObject({ tokens: 13, trainedTokens: 6 });
  });

  it("rejects a batch without pairs", () => {
    expect(() => preferenceRows([])).toThrow(ArgumentError);
  });

  propertyTest.prop([fc.array(logprob, { minLength: 6, maxLength: 6 }), objective])(
    "weights every trained token of a cross-entropy with the negative derivative of the mean loss",
    (values, settings) => {
      const logprobsOf = (given: readonly number[]) => {
        let next = 0;
        return batch.rows.map(({ weights }) => Float64Array.from(weights, (weight) => (weight === 0 ? 0 : given[next++]!)));
      };
      const gradientAt = (given: readonly number[]) =>
        preferenceGradient(batch, { policy: pairSums(batch.rows, logprobsOf(given)), reference }, settings);
      const { rows, loss } = gradientAt(values);
      expect(loss).toEqual({ kind: "cross-entropy" });
      const weights = rows.flatMap(({ weights: own }, index) => [...own].filter((_, t) => batch.rows[index]!.weights[t] !== 0));
      const step = 1e-5;
      for (const [token, weight] of weights.entries()) {
        const shifted = (by: number) => gradientAt(values.map((value, index) => (index === token ? value + by : value))).metrics.loss;
        expect(weight).toBeCloseTo(-(shifted(step) - shifted(-step)) / (2 * step), 6);
      }
      for (const [index, { weights: own }] of rows.entries())
        own.forEach((weight, t) => batch.rows[index]!.weights[t] === 0 && expect(weight).toBe(0));
    },
  );

  it("reports means of losses, rewards, margins and log-probabilities, and counts only larger rewards as accurate", () => {
    const policy = [
      { chosen: -1, rejected: -2 },
      { chosen: -1, rejected: -3 },
    ];
    const { metrics } = preferenceGradient(batch, { policy, reference }, PLAIN);
    const expected = {
      loss: (Math.log1p(Math.exp(-0.2)) + Math.LN2) / 2,
      "rewards/chosen": 0.05,
      "rewards/rejected": -0.05,
      "rewards/accuracies": 0.5,
      "rewards/margins": 0.1,
      "logps/chosen": -1,
      "logps/rejected": -2.5,
    };
    expect(Object.keys(metrics)).toEqual(Object.keys(expected));
    for (const [name, value] of Object.entries(expected)) expect(metrics[name as keyof typeof metrics], name).toBeCloseTo(value, 14);
  });
});

describe("preferenceSequences", () => {
  const read = (line: unknown, contextLength = 1024) =>
    preferenceSequences(readPreferencePair(line, "line 1"), tokenizer, { contextLength }, "line 1");
  const trained = ({ tokens, mask }: TokenSequence) => tokenizer.decode([...tokens].filter((_, t) => mask[t] === 1));
  const pair = { prompt: [user("a")], chosen: [assistant("b")], rejected: [assistant("longer")] };

  it("trains the answers after a common prompt, with their closing tokens", () => {
    const { pair: found } = read({ ...pair, prompt: [user("q"), assistant("context"), user("a")] });
    expect(trained(found!.chosen)).toBe("b<|end|>");
    expect(trained(found!.rejected)).toBe("longer<|end|>");
    const shared = found!.chosen.mask.indexOf(1);
    expect(found!.rejected.mask.indexOf(1)).toBe(shared);
    expect([...found!.chosen.tokens.subarray(0, shared)]).toEqual([...found!.rejected.tokens.subarray(0, shared)]);
    expect(tokenizer.decode(found!.chosen.tokens)).toContain("context");
  });

  it("trains all assistant messages of a longer continuation, except messages with weight 0", () => {
    const chosen = [assistant("one"), user("more"), assistant("two", { weight: 0 }), user("more"), assistant("three")];
    expect(trained(read({ ...pair, chosen }).pair!.chosen)).toBe("one<|end|>three<|end|>");
  });

  it("drops a pair as a whole if one of its sequences exceeds the context, and counts its trained tokens", () => {
    const fits = read(pair).pair!;
    const contextLength = fits.chosen.tokens.length;
    expect(fits.rejected.tokens.length).toBeGreaterThan(contextLength);
    const count = [...fits.chosen.mask, ...fits.rejected.mask].filter((bit) => bit === 1).length;
    expect(read(pair, contextLength)).toMatchObject({ pair: null, droppedTokens: count });
  });

  it.each([
    ["variables that the template does not read", { ...pair, chat_template_kwargs: { thinking: true } }, /line 1: chosen: .*`thinking`/],
    [
      "continuations with the same tokens",
      { ...pair, chosen: [assistant("b", { name: "x" })], rejected: [assistant("b")] },
      /renders them to the same tokens/,
    ],
  ])("rejects %s", (_, line, message) => {
    expect(() => read(line)).toThrow(expect.objectContaining({ name: DataError.name, message: expect.stringMatching(message) }));
  });
});
