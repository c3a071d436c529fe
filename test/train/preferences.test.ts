import { describe, expect, it } from "vitest";
import { uploadPreferences, type PreferencePair } from "../../src/library/dataset/index.ts";
import { trainPreferences, type TrackedEvent, type Tracker, type TrainPreferencesOptions } from "../../src/training/train/index.ts";
import { readLines, recorded, setUp, type Scenario, type SetUp } from "./support.ts";

const pairs = (count: number): PreferencePair[] =>
  Array.from({ length: count }, (_, index) => ({
    prompt: [{ role: "user", content: `hello ${index}` }],
    chosen: [{ role: "assistant", content: `world ${index}` }],
    rejected: [{ role: "assistant", content: `nobody is here ${index}` }],
  }));

function start(
  { model, runDir }: SetUp,
  options: Partial<TrainPreferencesOptions<Scenario>> & Pick<TrainPreferencesOptions<Scenario>, "data">,
) {
  return trainPreferences<Scenario>({ model, runDir, train: { batchSize: 2, learningRate: 0.01 }, report: false, ...options });
}

describe("trainPreferences", () => {
  it("runs one preference job per dataset, keeps every gradient step, and has means of rewards and sums of counts", async () => {
    const given = await setUp();
    const data = await uploadPreferences(given.service, { name: "pairs", train: pairs(4), validation: pairs(1) });
    const events = await recorded(start(given, { data }));
    expect(events[0]).toMatchObject({ type: "run-start", kind: "preference" });
    const steps = events.flatMap((event) => (event.type === "gradient-step" ? [event.metrics] : []));
    expect(steps).toHaveLength(2);
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row).toMatchObject({ num_pairs: 4, gradient_steps: 2, last_loss: steps[1]!["loss"], "validation/tokens": expect.any(Number) });
    for (const name of ["loss", "rewards/margins", "rewards/chosen", "rewards/rejected", "rewards/accuracies"])
      expect(row[name], name).toBeCloseTo((steps[0]![name]! + steps[1]![name]!) / 2, 12);
    expect(await given.service.trainingJobs.list({ modelId: given.model.id })).toMatchObject([{ type: "preference", status: "succeeded" }]);
  });

  it("gives trackers the metrics of every gradient step", async () => {
    const given = await setUp();
    const data = await uploadPreferences(given.service, { name: "pairs", train: pairs(4) });
    const seen: TrackedEvent[] = [];
    const log = async (events: readonly TrackedEvent[]) => void seen.push(...events);
    const tracker: Tracker = { name: "seen", open: async () => ({ log, close: async () => undefined }) };
    await start(given, { data, trackers: [tracker] }).done;
    const margins = seen.flatMap(({ step, metrics }) => (metrics["gradient/rewards/margins"] === undefined ? [] : [step]));
    expect(margins).toEqual([0, 1]);
  });

  it("resumes with the recorded dataset", async () => {
    const given = await setUp();
    const data = () => uploadPreferences(given.service, { name: "pairs", train: pairs(4) });
    const controller = new AbortController();
    const cut = start(given, { data, jobs: 1, signal: controller.signal });
    cut.events$.subscribe({ next: ({ type }) => type === "data-end" && controller.abort(new Error("cut")), error: () => undefined });
    await expect(cut.done).rejects.toThrow("cut");
    const resumed = start(given, { data: () => Promise.reject(new Error("uploaded twice")), jobs: 1 });
    await expect(resumed.done).resolves.toMatchObject({ reason: "completed", checkpointStep: 1 });
  });
});
