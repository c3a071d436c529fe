/** Judges that answer wrongly: an invalid answer never becomes a reward, and every failure is recorded as a failure. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { environmentRollout, defineEnvironment } from "../../src/library/environment/index.ts";
import { judgeEndpoint, relativeJudge, rubricJudge } from "../../src/library/judge/index.ts";
import { gatherTrajectoryGroups } from "../../src/library/rollout/index.ts";
import type { ChatCompletionRequest } from "../../src/base/schema/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { trajectory, type TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import {
  completionOf,
  hundredth,
  judged,
  judgeOf,
  judgeServer,
  PROMPT,
  rightEntries,
  rollout,
  scoresText,
  type Entry,
  type Reply,
} from "./support.ts";
import { randomCases } from "../support/random-cases.ts";

type Change = (entries: readonly Entry[], pick: number) => string;

const replaced = (entries: readonly Entry[], pick: number, change: object) =>
  scoresText(entries.map((entry, index) => (index === pick % entries.length ? { ...entry, ...change } : entry)));

/** Answers that give every candidate its right score. */
const VALID: Readonly<Record<string, Change>> = {
  right: (entries) => scoresText(entries),
  reversed: (entries) => scoresText(entries.toReversed()),
  rotated: (entries, pick) => scoresText([...entries.slice(pick % entries.length), ...entries.slice(0, pick % entries.length)]),
  fenced: (entries) => `Sure!\n\`\`\`json\n${scoresText(entries)}\n\`\`\``,
  "with other fields": (entries) => JSON.stringify({ note: "done", scores: entries.map((entry) => ({ ...entry, rank: 1 })) }),
  "without explanations": (entries) => scoresText(entries.map(({ id, score }) => ({ id, score }))),
};

/** Answers that must be rejected as a whole. */
const INVALID: Readonly<Record<string, Change>> = {
  "one entry too few": (entries, pick) => scoresText(entries.filter((_, index) => index !== pick % entries.length)),
  "one entry too many": (entries) => scoresText([...entries, { id: "zzzzzzzzzz", score: 1 }]),
  "an id twice": (entries, pick) => scoresText([...entries, { ...entries[pick % entries.length]!, score: 1 }]),
  "an unknown id": (entries, pick) => replaced(entries, pick, { id: "bbbbbbbbbb" }),
  "positions as ids": (entries) => scoresText(entries.map((entry, index) => ({ ...entry, id: String(index + 1) }))),
  "no id": (entries, pick) => replaced(entries, pick, { id: undefined }),
  "a score above 1": (entries, pick) => replaced(entries, pick, { score: 1.01 }),
  "a score below 0": (entries, pick) => replaced(entries, pick, { score: -0.2 }),
  "a score in percent": (entries) => scoresText(entries.map((entry) => ({ ...entry, score: 100 }))),
  "a score as text": (entries, pick) => replaced(entries, pick, { score: "0.5" }),
  "a score of null": (entries, pick) => replaced(entries, pick, { score: null }),
  "a score of NaN": (entries) => scoresText(entries).replaceAll(/"score":[\d.]+/g, '"score":NaN'),
  "no score": (entries, pick) => replaced(entries, pick, { score: undefined }),
  "a list instead of an object": (entries) => JSON.stringify(entries),
  "two objects": (entries) => `${scoresText(entries)}\n${scoresText(entries)}`,
  prose: () => "Both candidates are good, but I prefer the first one.",
  nothing: () => "",
  "half of the JSON": (entries) => scoresText(entries).slice(0, -3),
};

const FAILING = ["error", "timeout", "no choices", "no completion"] as const;

type Behavior = string;

const behavior = fc.constantFrom(...Object.keys(VALID), ...Object.keys(INVALID), ...FAILING);
const answers = fc.array(fc.integer({ min: 0, max: 20 }).map(String), { minLength: 1, maxLength: 6 });

function textOf(request: ChatCompletionRequest, name: Behavior, pick: number): string {
  const change = VALID[name] ?? INVALID[name];
  return change!(rightEntries(request, hundredth), pick);
}

/** Checks that a group has either all right rewards, or no trajectory and one exception per rollout. */
function checkGroup(group: TrajectoryGroup, texts: readonly string[], isScored: boolean): void {
  if (isScored) {
    expect(group.rewards).toEqual(texts.map(hundredth));
    expect(group.exceptions).toEqual([]);
  } else {
    expect(group.rewards).toEqual([]);
    expect(group.exceptions.map(({ type }) => type)).toEqual(texts.map(() => "RewardError"));
  }
}

describe("a judge that misbehaves", () => {
  test.prop([answers, behavior, behavior, fc.nat({ max: 100 }), fc.nat()], { numRuns: randomCases(2000) })(
    "never causes a wrong reward, and its failures are recorded, in random groups",
    async (texts, first, second, pick, seed) => {
      const model = {
        id: "judge",
        requests: 0,
        complete(request: ChatCompletionRequest) {
          const name = this.requests++ === 0 ? first : second;
          if (name === "error") return Promise.reject(new Error("no"));
          if (name === "timeout") return Promise.reject(new DOMException("late", "TimeoutError"));
          // A model in JavaScript may return anything.
          if (name === "no completion") return Promise.resolve(null as never);
          if (name === "no choices") return Promise.resolve(completionOf("", { choices: [] }));
          return Promise.resolve(completionOf(textOf(request, name, pick)));
        },
      };
      const group = await judged(
        relativeJudge({ model }),
        texts.map((text) => rollout(text)),
        seed,
      );
      const isAnswer = (name: Behavior) => name !== "error" && name !== "timeout";
      const isScored = first in VALID || (isAnswer(first) && second in VALID);
      checkGroup(group, texts, isScored);
      if (isScored) expect(group.metrics["judge/retries"]).toBe(first in VALID ? 0 : 1);
    },
  );

  it("over HTTP never causes a wrong reward, in 100 random groups at once", async () => {
    const reply = fc.constantFrom("right", "prose", "an id twice", "busy", "broken", "close", "hang", "no JSON");
    const cases = fc.sample(fc.tuple(answers, fc.array(reply, { minLength: 4, maxLength: 4 }), fc.nat()), { numRuns: 100, seed: 1 });
    const scripts = cases.map(([, script]) => [...script]);
    const timeouts = collectTimeouts();
    const server = await judgeServer((request, _, headers) => {
      const index = Number(headers["x-case"]);
      const reply = replyOf(request, scripts[index]!.shift()!);
      if (reply === "hang") timeouts.get(FIRST_TIMEOUT_MS + index)!();
      return reply;
    });
    const groups = await Promise.all(
      cases.map(async ([texts, , seed], index) => {
        const headers = { "x-case": String(index) };
        const timeoutMs = FIRST_TIMEOUT_MS + index;
        await using model = judgeEndpoint({ baseUrl: server.baseUrl, model: "judge", maxRetries: 1, timeoutMs, headers });
        const rollouts = texts.map((text) => rollout(text));
        return await judged(relativeJudge({ model }), rollouts, seed);
      }),
    );
    groups.forEach((group, index) => checkGroup(group, cases[index]![0], succeeds(cases[index]![1])));
    expect(groups.filter(({ rewards }) => rewards.length > 0).length).toBeGreaterThan(15);
  });
});

/** Timeout of the first group over HTTP; each further group has one more, which names the group. */
const FIRST_TIMEOUT_MS = 600_000;

/** Collects, until the end of the test, the callback of the last timer of each length from {@link FIRST_TIMEOUT_MS}. */
function collectTimeouts(): Map<number, () => void> {
  const timeouts = new Map<number, () => void>();
  const start = globalThis.setTimeout;
  const collect = (callback: () => void, ms?: number) => {
    if (ms !== undefined && ms >= FIRST_TIMEOUT_MS) timeouts.set(ms, callback);
    return start(callback, ms);
  };
  const spy = vi.spyOn(globalThis, "setTimeout").mockImplementation(collect as typeof setTimeout);
  onTestFinished(() => spy.mockRestore());
  return timeouts;
}

function replyOf(request: ChatCompletionRequest, name: string): Reply {
  if (name === "hang" || name === "close") return name;
  if (name === "busy") return { status: 503, body: { error: { message: "busy" } }, headers: { "retry-after": "0" } };
  if (name === "broken") return { status: 501, body: { error: { message: "never" } } };
  if (name === "no JSON") return { body: "<html>" };
  return { body: completionOf(textOf(request, name, 1)) };
}

/** Returns whether a script of replies leads to scores: two questions, each with one retry of a transient failure. */
function succeeds(script: readonly string[]): boolean {
  const left = [...script];
  for (let question = 0; question < 2; question++) {
    let reply = left.shift();
    if (reply === "busy" || reply === "close" || reply === "hang") reply = left.shift();
    if (reply === "right") return true;
    if (reply !== "prose" && reply !== "an id twice") return false;
  }
  return false;
}

describe("an invalid answer", () => {
  it.each(Object.entries(INVALID))("with %s is rejected, and the second request states the problem", async (_, change) => {
    const model = judgeOf((request, index) =>
      index === 0 ? change(rightEntries(request, hundredth), 0) : scoresText(rightEntries(request, hundredth)),
    );
    const group = await judged(relativeJudge({ model }), [rollout("30"), rollout("60")]);
    expect(group.rewards).toEqual([0.3, 0.6]);
    expect(group.metrics["judge/retries"]).toBe(1);
    expect(group.metrics["judge/prompt_tokens"]).toBe(200);
    const [question, answer, complaint] = model.requests[1]!.messages.slice(1);
    expect(question).toEqual(model.requests[0]!.messages[1]);
    expect(answer).toMatchObject({ role: "assistant", content: expect.stringMatching(/\S/) });
    expect(complaint).toMatchObject({ role: "user", content: expect.stringMatching(/^This answer is not valid: .{10,}/s) });
  });

  it("names every problem: count, unknown, repeated and missing ids, and the range", async () => {
    const model = judgeOf((request) => {
      const [entry] = rightEntries(request, hundredth);
      return scoresText([entry!, { ...entry!, score: 7 }, { id: "stranger", score: 0 }]);
    });
    const group = await judged(relativeJudge({ model }), [rollout("30"), rollout("60")]);
    const { message } = group.exceptions[0]!;
    expect(group.exceptions).toHaveLength(2);
    for (const part of [
      "one per id, got 3",
      'unknown ids: `"stranger"`',
      "repeated ids",
      "missing ids",
      "from 0 to 1, got `7`",
      "answer 2:",
    ]) {
      expect(message).toContain(part);
    }
    expect(model.requests).toHaveLength(2);
  });

  it("of one sample fails the group even if the other samples are valid", async () => {
    const model = judgeOf((request) => {
      const entries = rightEntries(request, hundredth);
      return entries[0]!.id! < "k" ? "no idea" : scoresText(entries);
    });
    // Enough samples that one of them shows an id that starts with a letter before k.
    const group = await judged(relativeJudge({ model, samples: 15 }), [rollout("30")]);
    expect(group.exceptions).toHaveLength(1);
  });
});

describe("a failing judge in a run", () => {
  const environment = (model: Parameters<typeof rubricJudge>[0]["model"], isGroup: boolean) =>
    defineEnvironment({
      name: "numbers",
      scenarios: { train: [{ id: "a" }, { id: "b" }], eval: [] },
      async rollout({ id }, { policy, sampling }) {
        const t = trajectory({ messages: [...PROMPT, { role: "user", content: id }] });
        await t.sample(policy, sampling);
        return t;
      },
      ...(isGroup
        ? { groupRewards: [relativeJudge({ model })] }
        : { rewards: [rubricJudge({ model, criteria: [{ name: "good", description: "It is good." }] })] }),
    });
  const policy = () => createScriptedPolicy(() => ({ text: "50" }));

  it.each([
    ["a group reward", true, 4],
    ["a reward", false, 4],
  ])("with a timeout fails the rollouts of %s and does not end the run", async (_, isGroup, failed) => {
    const model = { id: "slow", complete: () => Promise.reject(new DOMException("took too long", "TimeoutError")) };
    const groups = await gatherTrajectoryGroups(
      environment(model, isGroup).scenarios.train as { id: string }[],
      environmentRollout(environment(model, isGroup)),
      {
        policy: policy(),
        groupSize: 2,
        maxExceptions: 4,
      },
    );
    const exceptions = groups.flatMap((group) => group.exceptions);
    expect(exceptions).toHaveLength(failed);
    expect(exceptions[0]?.message).toContain("JudgeError: Judge `slow` did not answer: TimeoutError: took too long");
  });

  it("fails the run when more rollouts fail than `maxExceptions` allows, naming the judge's problem", async () => {
    const model = judgeOf(() => "prose");
    const run = gatherTrajectoryGroups([{ id: "a" }], environmentRollout(environment(model, true)), { policy: policy(), groupSize: 2 });
    await expect(run).rejects.toThrow(
      /JudgeError: Judge `judge` gave no valid answer in 2 attempts; answer 1: expected a JSON object, got none/,
    );
  });

  it("passes an abort of the run on to the judge's request", async () => {
    const controller = new AbortController();
    let aborted: unknown;
    const model = {
      id: "judge",
      complete: (_: ChatCompletionRequest, { signal }: { readonly signal?: AbortSignal | undefined } = {}) =>
        new Promise<never>((_resolve, reject) => {
          signal!.addEventListener("abort", () => reject((aborted = signal!.reason) as Error));
          controller.abort(new Error("stopped"));
        }),
    };
    const options = { policy: policy(), groupSize: 1, signal: controller.signal };
    await expect(gatherTrajectoryGroups([{ id: "a" }], environmentRollout(environment(model, true)), options)).rejects.toThrow("stopped");
    expect(aborted).toMatchObject({ message: "stopped" });
  });
});
