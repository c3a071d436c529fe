/** Trajectories written by Harbor, verifiers and ART are read as those packages read them, and Harbor accepts the ATIF that is written. */
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { readArtGroups, readAtif, readVerifiersTraces, toAtif } from "../../src/library/dataset/index.ts";
import { preflight, Trajectory, type TrajectoryGroup } from "../../src/base/trajectory/index.ts";

interface Evidence {
  readonly prompt_token_ids: readonly number[];
  readonly token_ids: readonly number[];
  readonly logprobs: readonly number[];
}
interface Expected {
  readonly written: unknown;
  readonly reward: number;
  readonly branches: readonly {
    readonly messages: string[];
    readonly token_ids: number[];
    readonly mask: boolean[];
    readonly logprobs: number[];
  }[];
  readonly art: Readonly<Record<string, readonly Evidence[]>>;
}
const place = (name: string) => fileURLToPath(new URL(`trajectory-formats/${name}`, import.meta.url));
const parsed = (name: string): unknown => JSON.parse(readFileSync(place(name), "utf8"));
const expected = parsed("expected.json") as Expected;

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

function evidenceOf(trajectory: Trajectory): Evidence[] {
  return trajectory.allChoices.map(({ prompt_token_ids: prompt, token_ids: ids, logprobs }) => ({
    prompt_token_ids: prompt ?? [],
    token_ids: ids ?? [],
    logprobs: (logprobs?.content ?? []).map(({ logprob }) => logprob),
  }));
}

const call = (id: string | null, given: string) => ({ id, type: "function", function: { name: "weather", arguments: given } });
const choice = (message: object, prompt: number[], ids: number[]) => ({
  message: { role: "assistant", ...message },
  finish_reason: "stop",
  policy_version: 3,
  prompt_token_ids: prompt,
  token_ids: ids,
  logprobs: { content: ids.map((id) => ({ token: `t${id}`, logprob: -id / 8, bytes: [id] })) },
});
/** Everything that ATIF expresses in another way, or only under `extra`. */
const rich = Trajectory.fromJSON({
  messages_and_choices: [
    { role: "developer", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "text", text: "Weather?" },
        { type: "image_url", image_url: { url: "data:," } },
      ],
    },
    { role: "assistant", content: "An example.", weight: 0 },
    choice({ content: null, reasoning: "Ask.", tool_calls: [call("c1", '{"city": "Rome"}'), call(null, "not json")] }, [1, 2], [3, 4]),
    { role: "tool", tool_call_id: "c1", content: "sunny" },
    { role: "tool", content: "no identifier" },
    { role: "user", content: "And?" },
    choice({ content: "Sunny." }, [1, 2, 3, 4, 5], [6]),
  ],
  tools: [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }],
  additional_histories: [
    { messages_and_choices: [{ role: "user", content: "Before." }, choice({ content: "Compacted." }, [7], [8])] },
    { messages_and_choices: [{ role: "tool", tool_call_id: "x", content: "first" }] },
  ],
  reward: 0.5,
  metrics: { turns: 2 },
  metadata: { scenario_id: "a" },
});

describe("Harbor", () => {
  it("accepts the documents that are written", async () => {
    const written = [toAtif(rich, { agent: { name: "mine", version: "1", model: "m" } })];
    await expect(`${JSON.stringify(written, null, 1)}\n`).toMatchFileSnapshot(place("written.json"));
    expect(expected.written).toEqual(written);
  });

  it("writes documents that are read with tools, feedback, copied context and sub-agents", async () => {
    const [read] = await readAtif(place("harbor.json")).toArray();
    expect(read?.messages().map(({ role, content }) => [role, content])).toEqual([
      ["system", "Be brief."],
      [
        "user",
        [
          { type: "text", text: "Weather in " },
          { type: "text", text: "Rome?" },
        ],
      ],
      ["assistant", "An earlier answer."],
      ["assistant", null],
      ["tool", "sunny"],
      ["user", "One call left."],
      ["assistant", "logged"],
      ["assistant", "It is sunny."],
    ]);
    expect(evidenceOf(read!)).toEqual([
      { prompt_token_ids: [1, 2, 3], token_ids: [4, 5], logprobs: [-0.5, -0.25] },
      { prompt_token_ids: [1, 2, 3, 4, 5, 6], token_ids: [7], logprobs: [-0.125] },
      { prompt_token_ids: [], token_ids: [9], logprobs: [-1] },
    ]);
    expect(read?.choices.map(({ model, message }) => [model, message.reasoning, message.tool_calls?.[0]])).toEqual([
      [undefined, "Ask the tool.", call("c1", '{"city":"Rome"}')],
      ["local/other", undefined, undefined],
    ]);
    expect(read?.tools[0]?.function.name).toBe("weather");
    expect(read?.metadata).toEqual({ session_id: "run-1", agent: "terminus", agent_version: "2.0", model: "local/demo" });
    expect(read?.logs).toEqual(["made for a test", "The sub-agent's trajectory in other.json was not read"]);
    expect(read?.startTime).toBe("2026-11-01T10:00:00Z");
  });
});

describe("verifiers", () => {
  it("writes traces that are read as groups with its branches, rewards and errors", async () => {
    const groups = await all(readVerifiersTraces(place("traces.jsonl")));
    expect(groups).toHaveLength(2);
    const [{ trajectories, exceptions, metadata }, { exceptions: others }] = groups as [TrajectoryGroup, TrajectoryGroup];
    expect(metadata).toEqual({ scenario_id: "task-7", group_id: "g", environment: "weather", agent: "solver" });
    expect(exceptions).toEqual([{ type: "ProviderError", message: "status 500", traceback: "", trace_id: "trace-2", episode_id: "e2" }]);
    expect(others).toEqual([{ type: "EnvError", message: "no box", traceback: "at run", episode_id: "e3" }]);
    const [read] = trajectories;
    expect(read?.reward).toBe(expected.reward);
    expect(read?.metrics).toEqual({ turns: 3, "reward/correct": 1, "reward/style": 0.5 });
    expect([read?.initialPolicyVersion, read?.finalPolicyVersion, read?.logs]).toEqual([2, 3, ["ProviderError: a first attempt failed"]]);
    // verifiers lists the branches in the order of their last nodes; the last is the main one.
    const texts = [read!.messagesAndChoices, ...read!.additionalHistories.map((each) => each.messagesAndChoices)].map((items) =>
      items.map((item) => (item as { message?: { content: string } }).message?.content ?? (item as { content: string }).content ?? ""),
    );
    const [first, main, harness] = expected.branches.map(({ messages }) => messages);
    expect(texts).toEqual([harness, first, main]);
    // Every sampled token of the graph is in exactly one choice, after the tokens that verifiers has before it.
    for (const { prompt_token_ids: prompt, token_ids: ids, logprobs } of evidenceOf(read!)) {
      const branch = expected.branches.find(
        ({ token_ids: tokens }) => prompt.every((id, at) => tokens[at] === id) && ids.every((id, at) => tokens[prompt.length + at] === id),
      );
      const range = [prompt.length, prompt.length + ids.length] as const;
      expect(branch?.mask.slice(...range)).toEqual(ids.map(() => true));
      logprobs.forEach((logprob, at) => expect(logprob).toBeCloseTo(branch!.logprobs[range[0] + at]!, 4));
    }
    expect(
      evidenceOf(read!)
        .flatMap(({ token_ids: ids }) => ids)
        .toSorted((a, b) => a - b),
    ).toEqual([7, 8, 10, 11, 14]);
    expect(read?.allChoices.map((each) => [each.finish_reason, each["temperature"]])).toContainEqual(["tool_calls", 0.7]);
    expect(preflight(groups.slice(0, 1)).map(({ code }) => code)).not.toContain("choice-without-token-ids");
  });
});

describe("ART", () => {
  it("writes exchanges of four APIs that are read as histories with its token ids and log-probabilities", async () => {
    const [group] = await all(readArtGroups(place("art.jsonl")));
    expect(group?.rewards).toEqual([0, 1, 2, 3]);
    for (const each of group!.trajectories) {
      const api = String(each.metadata["api"]);
      expect(evidenceOf(each), api).toEqual(expected.art[api]);
      expect([each.additionalHistories.length, each.logs, each.metadata["list"]], api).toEqual([0, [], "[1]"]);
      expect(each.startTime).toMatch(/^2026-11-01T10:00:00/u);
      if (api === "completions") continue;
      const texts = each.messages().map(({ role, content }) => [role, content]);
      const system = api === "chat_completions" ? [] : [["system", "Be brief."]];
      const answers = [
        ["user", "Weather in Rome?"],
        ["assistant", null],
        ["tool", "sunny"],
        ["assistant", "Sunny."],
      ];
      expect(texts, api).toEqual([...system, ...answers]);
      const called = each.choices[0]?.message.tool_calls?.[0]?.function;
      expect([called?.name, JSON.parse(called?.arguments ?? "")], api).toEqual(["weather", { city: "Rome" }]);
      expect(each.tools[0]?.function.name, api).toBe("weather");
      expect(
        each.choices.map(({ finish_reason: reason }) => reason),
        api,
      ).toEqual(["tool_calls", "stop"]);
    }
  });

  it("writes exchanges without token ids that are joined to histories by their messages", async () => {
    const text = readFileSync(place("art.jsonl"), "utf8");
    const names = new Set(["prompt_token_ids", "token_ids", "logprobs", "token_generations"]);
    const bare = JSON.stringify(JSON.parse(text, (key, value: unknown) => (names.has(key) ? null : value)));
    const directory = await mkdtemp(join(tmpdir(), "whetstone-art-test-"));
    try {
      await writeFile(join(directory, "bare.jsonl"), bare);
      const [group] = await all(readArtGroups(join(directory, "bare.jsonl")));
      const shapes = group!.trajectories.map((each) => [each.metadata["api"], each.choices.length, each.additionalHistories.length]);
      expect(shapes).toEqual([
        ["chat_completions", 2, 0],
        ["messages", 2, 0],
        ["responses", 2, 0],
        ["completions", 1, 0],
      ]);
      expect(new Set(preflight([group!]).map(({ code }) => code))).toContain("choice-without-token-ids");
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});
