import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { relativeJudge, type RelativeJudgeOptions } from "../../src/library/judge/index.ts";
import { candidatesIn, fairJudge, judged, judgeOf, rollout } from "./support.ts";

async function directory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "judge-cache-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

const files = async (path: string) => (await readdir(path, { recursive: true })).filter((name) => name.endsWith(".json"));

describe("the cache of a judge", () => {
  it("answers repeated questions without a request, also of another judge object, as after a restart", async () => {
    const cacheDir = join(await directory(), "judge", "answers");
    const rollouts = [rollout("20"), rollout("70")];
    const first = fairJudge();
    const before = await judged(relativeJudge({ model: first, cacheDir, samples: 3 }), rollouts);
    expect([first.requests.length, before.metrics["judge/cached"]]).toEqual([3, 0]);
    const second = fairJudge({ prices: { inputPerMillion: 1, outputPerMillion: 1 } });
    const after = await judged(relativeJudge({ model: second, cacheDir, samples: 3 }), rollouts.toReversed());
    expect(second.requests).toEqual([]);
    expect(after.rewards).toEqual(before.rewards.toReversed());
    expect(after.metrics).toEqual({
      "judge/prompt_tokens": 0,
      "judge/completion_tokens": 0,
      "judge/cost_usd": 0,
      "judge/cached": 3,
      "judge/retries": 0,
    });
    expect(await files(cacheDir)).toHaveLength(3);
  });

  it.each<[string, Partial<RelativeJudgeOptions<unknown>>, (readonly string[])?, number?]>([
    ["model", { model: fairJudge({ id: "other" }) }],
    ["address", { model: fairJudge({ baseUrl: "http://127.0.0.1:1/v1" }) }],
    ["rubric", { rubric: "Prefer small numbers." }],
    ["form of the output", { output: "text" }],
    ["explanations", { explain: false }],
    ["fields of the request", { request: { temperature: 0, seed: 3n } }],
    ["content of a rollout", {}, ["20", "71"]],
    ["seed", {}, ["20", "70"], 2],
  ])("asks again if another %s determines the answer", async (_, change, texts = ["20", "70"], seed = 1) => {
    const cacheDir = await directory();
    await judged(relativeJudge({ model: fairJudge(), cacheDir }), [rollout("20"), rollout("70")], 1);
    const options = { model: fairJudge(), cacheDir, ...change };
    const group = await judged(
      relativeJudge(options),
      texts.map((text) => rollout(text)),
      seed,
    );
    expect(group.metrics["judge/cached"]).toBe(0);
    expect(await files(cacheDir)).toHaveLength(2);
  });

  it("does not store invalid answers", async () => {
    const cacheDir = await directory();
    const group = await judged(relativeJudge({ model: judgeOf(() => "prose"), cacheDir }), [rollout("20")]);
    expect(group.exceptions).toHaveLength(1);
    expect(await files(cacheDir)).toEqual([]);
  });

  it.each([
    ["cut off", (text: string) => text.slice(0, 20)],
    ["of another form", () => '{"text": 3}'],
    ["with scores outside the range", (text: string) => text.replace("0.2", "2")],
  ])("replaces a stored file that is %s", async (_, damage) => {
    const cacheDir = await directory();
    await judged(relativeJudge({ model: fairJudge(), cacheDir }), [rollout("20")]);
    const [name] = await files(cacheDir);
    const path = join(cacheDir, name!);
    const stored = await readFile(path, "utf8");
    await writeFile(path, damage(stored));
    const model = fairJudge();
    expect((await judged(relativeJudge({ model, cacheDir }), [rollout("20")])).rewards).toEqual([0.2]);
    expect(model.requests).toHaveLength(1);
    expect(await readFile(path, "utf8")).toBe(stored);
  });

  it("stores nothing without a directory", async () => {
    const model = fairJudge();
    const reward = relativeJudge({ model });
    for (let i = 0; i < 2; i++) await judged(reward, [rollout("20")]);
    expect(model.requests).toHaveLength(2);
    expect(candidatesIn(model.requests[0]!)).toEqual(candidatesIn(model.requests[1]!));
  });
});
