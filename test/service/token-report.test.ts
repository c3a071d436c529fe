import { describe, expect, it } from "vitest";
import { choice, createModel, finishedEvents, group, RL_JOBS, startTestService, UNKNOWN_ID } from "./support.ts";

describe("the token report of an RL job", () => {
  it("has the advantage and the trainer's log-probabilities of every sampled token, by trajectory and turn", async () => {
    const test = await startTestService();
    const { id: modelId } = await createModel(test);
    const groups = [
      group({ reward: 1, choices: [choice([1], [2])] }, { reward: 1, choices: [choice([1], [3])] }),
      // Two turns in one sequence, and two that do not continue each other.
      group(
        { reward: 1, choices: [choice([1, 2, 3], [4, 5]), choice([1, 2, 3, 4, 5, 6], [7])] },
        { reward: 0, choices: [choice([1, 2], [9]), choice([8, 8], [6, 5, 4])] },
      ),
    ];
    const { id } = await test.ok("POST", RL_JOBS, {
      model_id: modelId,
      trajectory_groups: groups,
      experimental_config: { token_report: true },
    });
    await finishedEvents(test, id);
    const report = await test.ok("GET", `${RL_JOBS}/${id}/tokens`);
    // The first group is constant and has no rows.
    expect(
      report.data.map((each: any) => [each.group, each.trajectory, each.turns.map(({ turn, logprobs }: any) => [turn, logprobs.length])]),
    ).toEqual([
      [
        1,
        0,
        [
          [0, 2],
          [1, 1],
        ],
      ],
      [
        1,
        1,
        [
          [0, 1],
          [1, 3],
        ],
      ],
    ]);
    const advantages = report.data.map((each: any) => each.turns.map(({ advantage }: any) => advantage as number));
    expect(advantages[0][0]).toBeGreaterThan(0);
    expect(advantages[1][0]).toBeLessThan(0);
    expect(advantages.map((turns: number[]) => new Set(turns).size)).toEqual([1, 1]);
    // The scripted engine gives every token the log-probability −1 before its first step.
    for (const each of report.data) for (const { logprobs } of each.turns) expect(new Set(logprobs)).toEqual(new Set([-1]));
  });

  it("has the advantage of each token of a choice with token advantages, and null for a token that was not trained", async () => {
    const test = await startTestService();
    const { id: modelId } = await createModel(test);
    const values = { token_advantages: [1, -3, 2], token_weights: [1, 1, 0] };
    const groups = [
      group(
        { reward: 1, choices: [{ ...choice([1], [2, 3, 4]), ...values }] },
        { reward: 1, choices: [{ ...choice([1], [5, 6]), token_advantages: [0.5, 0.5] }] },
      ),
    ];
    const { id } = await test.ok("POST", RL_JOBS, {
      model_id: modelId,
      trajectory_groups: groups,
      experimental_config: { token_report: true, loss_reduction: "constant", loss_normalizer: 8 },
    });
    await finishedEvents(test, id);
    const { data } = await test.ok("GET", `${RL_JOBS}/${id}/tokens`);
    expect(data).toEqual([
      { group: 0, trajectory: 0, turns: [{ turn: 0, advantage: -1, advantages: [1, -3, 0], logprobs: [-1, -1, null] }] },
      { group: 0, trajectory: 1, turns: [{ turn: 0, advantage: 0.5, logprobs: [-1, -1] }] },
    ]);
  });

  it.each([
    ["of a job that did not ask for one", {}],
    ["of a job that said no", { token_report: false }],
  ])("is not found: %s", async (_, config) => {
    const test = await startTestService();
    const { id: modelId } = await createModel(test);
    const groups = [group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] })];
    const { id } = await test.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: groups, experimental_config: config });
    await finishedEvents(test, id);
    const answer = await test.call("GET", `${RL_JOBS}/${id}/tokens`);
    expect(answer).toMatchObject({ status: 404, body: { error: { message: expect.stringContaining("token_report") } } });
  });

  it.each([UNKNOWN_ID, "..%2f..%2fapi-key"])("is not found for the job id %s", async (id) => {
    const test = await startTestService();
    expect((await test.call("GET", `${RL_JOBS}/${id}/tokens`)).status).toBe(404);
  });
});
