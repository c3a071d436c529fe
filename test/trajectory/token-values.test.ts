import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { readJsonLines, writeJsonLines } from "../../src/library/dataset/jsonl.ts";
import { ArgumentError } from "../../src/base/errors.ts";
import {
  preflight,
  Trajectory,
  TrajectoryGroup,
  trajectoryGroups,
  withTokenAdvantages,
  withTokenWeights,
} from "../../src/base/trajectory/index.ts";
import { validateTrajectory } from "../../src/base/trajectory/validate.ts";
import { group, sampled } from "./samples.ts";

const codes = (...groups: readonly TrajectoryGroup[]) => preflight(groups).map(({ code, severity }) => `${severity} ${code}`);
/** A trajectory with a choice in an additional history. */
function withHistory(): Trajectory {
  const wire = sampled(1, "ab").toJSON();
  const { messages_and_choices: items } = sampled(0, "xyz").toJSON();
  return Trajectory.fromJSON({ ...wire, additional_histories: [{ messages_and_choices: items }] });
}

describe("withTokenAdvantages and withTokenWeights", () => {
  it("set one value per sampled token, of all histories, in a copy", () => {
    const before = withHistory();
    const after = withTokenAdvantages(before, ({ token_ids: ids }, index) => ids!.map((_, t) => index + t / 10));
    expect(after.allChoices.map((choice) => choice.token_advantages)).toEqual([
      [0, 0.1],
      [1, 1.1, 1.2],
    ]);
    expect(before.allChoices.map((choice) => choice.token_advantages)).toEqual([undefined, undefined]);
    const weighted = withTokenWeights(after, ({ token_ids: ids }) => ids!.map(() => 0.5));
    expect(weighted.allChoices[1]).toMatchObject({ token_weights: [0.5, 0.5, 0.5], token_advantages: [1, 1.1, 1.2] });
    expect(weighted.messages()).toEqual(before.messages());
    expect(Object.isFrozen(weighted.allChoices[1]!.token_weights)).toBe(true);
  });

  it("are kept by another reward, and by a round trip through a JSONL file", async () => {
    const one = withTokenWeights(
      withTokenAdvantages(withHistory(), ({ token_ids: ids }) => ids!.map((_, t) => 0.1 * t - 1e-9)),
      ({ token_ids: ids }) => ids!.map((_, t) => t),
    );
    const directory = await mkdtemp(join(tmpdir(), "whetstone-values-"));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const path = join(directory, "groups.jsonl");
    const written = new TrajectoryGroup({ trajectories: [one, one.with({ reward: 7 })] });
    await writeJsonLines(path, [written]);
    const read: TrajectoryGroup[] = [];
    for await (const { value } of readJsonLines(path)) read.push(TrajectoryGroup.fromJSON(value));
    expect(read[0]!.toJSON()).toEqual(written.toJSON());
    expect(read[0]!.trajectories[1]!.allChoices[1]!.token_weights).toEqual([0, 1, 2]);
  });

  it.each([
    ["another number of values", () => [1], /has not as many/],
    ["a value that is not finite", () => [1, Number.NaN], /is not a finite number/],
    ["a negative weight", () => [1, -1], /a weight is negative/],
  ])("reject %s", (_, values, message) => {
    const set = () => withTokenWeights(sampled(1, "ab"), values);
    expect(set).toThrow(ArgumentError);
    expect(set).toThrow(message);
    expect(set).toThrow(expect.objectContaining({ param: "token_weights", message: expect.stringContaining("Choice 0") }));
  });

  it("accept negative advantages and reject a choice without token ids", () => {
    expect(withTokenAdvantages(sampled(1, "ab"), () => [-1, -2]).choices[0]!.token_advantages).toEqual([-1, -2]);
    expect(() => withTokenAdvantages(sampled(1, "ab", { token_ids: null }), () => [1, 2])).toThrow(/has not as many/);
  });
});

describe("the schema", () => {
  it.each([{ token_advantages: [null] }, { token_advantages: ["1"] }, { token_weights: [-1] }, { token_weights: 1 }])(
    "rejects %j",
    (change) => {
      const wire = JSON.parse(JSON.stringify(sampled(1, "a"))) as { messages_and_choices: object[] };
      Object.assign(wire.messages_and_choices[1]!, change);
      expect(validateTrajectory(wire).success).toBe(false);
    },
  );
});

describe("preflight", () => {
  const supplied = (reward: number, text: string, advantage: number) =>
    withTokenAdvantages(sampled(reward, text), ({ token_ids: ids }) => ids!.map(() => advantage));

  it("accepts a group with equal rewards, or of one trajectory, with token advantages that are not all 0", () => {
    const equal = group(supplied(1, "a", 0), supplied(1, "b", 2));
    expect(codes(equal)).toEqual([]);
    expect(codes(group(supplied(1, "a", 1)))).toEqual([]);
    expect(trajectoryGroups([equal]).stats.trainableGroups).toBe(1);
    expect(codes(group(supplied(1, "a", 0), supplied(0, "b", 0)))).toEqual(["fatal nothing-to-learn", "warning constant-group"]);
    expect(trajectoryGroups([group(supplied(1, "a", 0), supplied(0, "b", 0))]).stats.trainableGroups).toBe(0);
  });

  it.each([
    ["advantages of some choices of a group", [supplied(1, "a", 1), sampled(0)], "mixed-token-advantages"],
    [
      "too few advantages",
      [sampled(1, "ab", { token_advantages: [1] }), sampled(0, "c", { token_advantages: [1] })],
      "token-value-mismatch",
    ],
    ["too many weights", [sampled(1, "a", { token_weights: [1, 1] }), sampled(0)], "token-value-mismatch"],
  ])("reports %s", (_, trajectories, code) => {
    expect(codes(group(...trajectories))).toEqual([`fatal ${code}`]);
  });

  it("reports token advantages in a job with turn rewards", () => {
    const batch = [group(supplied(1, "a", 1), supplied(0, "b", 2))];
    expect(preflight(batch, { usesTurnRewards: true })).toMatchObject([
      {
        code: "token-advantages-with-turn-rewards",
        severity: "fatal",
        count: 2,
        examples: [0, 1].map((index) => `trajectory_groups.0.trajectories.${index}.messages_and_choices.1`),
      },
    ]);
    expect(preflight(batch, { usesTurnRewards: false })).toEqual([]);
    expect(preflight([group(sampled(1), sampled(0))], { usesTurnRewards: true })).toEqual([]);
  });

  it("reports values that are not finite, which JSON cannot have", () => {
    const wire = sampled(1, "a").toJSON();
    for (const change of [{ token_advantages: [Number.NaN] }, { token_weights: [Number.POSITIVE_INFINITY] }, { token_weights: [-1] }]) {
      const [message, choice] = wire.messages_and_choices;
      const broken = Trajectory.fromWire({
        ...wire,
        messages_and_choices: [message!, { ...choice!, ...change } as typeof choice & object],
      });
      const found = preflight([group(broken), group(sampled(0), sampled(1))]);
      expect(found[0]).toMatchObject({
        code: "invalid-token-value",
        severity: "fatal",
        examples: ["trajectory_groups.0.trajectories.0.messages_and_choices.1"],
      });
    }
  });
});
