/** Templates that drop earlier reasoning: one training row per turn; with the variable that keeps the reasoning, one per rollout. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { defineEnvironment, evaluate } from "../../src/library/environment/index.ts";
import { openRun } from "../../src/lab/experiment/index.ts";
import {
  connect,
  gatherTrajectoryGroups,
  preflight,
  trajectory,
  uploadDataset,
  type RolloutContext,
  type Trajectory,
} from "../../src/index.ts";
import { startTestService } from "../../src/testing/index.ts";
import { evaluateCheckpoints, trainRl } from "../../src/training/train/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import type { Row } from "../../src/base/training-rows.ts";
import { temporaryDirectory } from "../service/support.ts";
import { REASONING_TEMPLATES, reasoningBase } from "../support/reasoning-base.ts";

const TURNS = 4;
type Name = keyof typeof REASONING_TEMPLATES;

interface Setup {
  readonly parser?: "think" | "none" | undefined;
  readonly open?: string | undefined;
  /** Text between the reasoning and the answer. */
  readonly close?: string | undefined;
  /** End token. @default the first one of the model */
  readonly end?: string | undefined;
}

async function start(name: Name, { parser = "think", open = "", close = "\n</think>\n\n", end = "" }: Setup = {}) {
  const test = await startTestService({
    engine: { bases: [await reasoningBase(name)] },
    limits: { chat: { reasoningParser: parser } },
    answer: ({ params, prompt }) => `${open}let me think of ${params.seed}${close}answer ${prompt.length}${end}`,
  });
  onTestFinished(() => test.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
  const model = await service.models.create({ project: "demo", name: "thinker", baseModel: name });
  return { test, service, model, policy: await model.policy() };
}

const conversation = async (scenario: string, { policy, sampling, index }: RolloutContext): Promise<Trajectory> => {
  const t = trajectory({ messages: [{ role: "user", content: scenario }] });
  for (let turn = 0; turn < TURNS; turn++) {
    if (turn > 0) t.add({ role: "user", content: "and then?" });
    await t.sample(policy, { maxCompletionTokens: 64, ...sampling });
  }
  return t.finish({ reward: index % 2 });
};

const codesOf = (groups: Parameters<typeof preflight>[0]) => preflight(groups).map(({ code }) => code);
interface Answer {
  readonly content: string | null;
  readonly reasoning?: string | null;
  readonly tool_calls?: readonly { readonly id: string }[];
}

async function ask(url: string, key: string, body: object, send: typeof fetch = fetch): Promise<Answer> {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await send(url, {
    method: "POST",
    headers,
    body: JSON.stringify({ model: "any", max_tokens: 99, temperature: 1, ...body }),
  });
  expect(response.status).toBe(200);
  return ((await response.json()) as { choices: { message: Answer }[] }).choices[0]!.message;
}

/** Requests of an agent that is written for an OpenAI client and sends its messages without reasoning. */
async function talk(url: string, key: string, body: object, send?: typeof fetch): Promise<void> {
  const messages: object[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    messages.push({ role: "user", content: `question ${turn}` });
    const { content } = await ask(`${url}/chat/completions`, key, { messages, seed: turn, ...body }, send);
    messages.push({ role: "assistant", content });
  }
}

/** Whether each turn continues the tokens of the turn before. */
function continuing({ choices }: Trajectory): boolean {
  expect(choices).toHaveLength(TURNS);
  return choices.slice(1).every(({ prompt_token_ids: prompt }, index) => {
    const before = [...choices[index]!.prompt_token_ids!, ...choices[index]!.token_ids!];
    return before.every((token, at) => token === prompt![at]);
  });
}

async function* concat<T>(...sources: readonly (AsyncIterable<T> | Iterable<T>)[]): AsyncGenerator<T> {
  for (const source of sources) yield* source;
}

const rowsOf = ({ additionalHistories }: Trajectory) => 1 + additionalHistories.length;

describe.each([
  ["preserve-thinking", "think", "\n</think>\n\n"],
  ["preserve-thinking", "none", "\n</think>\n\n"],
  ["clear-thinking", "think", "</think>"],
  // The template writes other whitespace than the model, or closes reasoning that the model did not close.
  ["preserve-thinking", "think", "</think> "],
  ["preserve-thinking", "none", "</think> "],
  ["preserve-thinking", "none", " "],
  ["clear-thinking", "none", "\n\n</think>"],
] as const)("the template %s with the reasoning parser %s and reasoning that ends with %j", (name, parser, close) => {
  const { kwargs: chatTemplateKwargs } = REASONING_TEMPLATES[name];

  it("trains one row per turn without its variable and one per rollout with it", async () => {
    const { model, policy } = await start(name, { parser, close, end: name === "clear-thinking" ? "<|user|>" : "" });
    const options = { policy, groupSize: 2, seed: 1, progress: false } as const;
    const dropped = await gatherTrajectoryGroups(["hello"], conversation, options);
    expect(codesOf(dropped)).toEqual(["separate-turns"]);
    expect((await (await model.train(dropped)).done()).metrics).toMatchObject({
      "data/sequences": 2 * TURNS,
      "data/sequences_per_rollout": TURNS,
      "data/drifted_turns": 2 * (TURNS - 1),
    });
    const kept = await gatherTrajectoryGroups(["hello"], conversation, { ...options, chatTemplateKwargs });
    expect(codesOf(kept)).toEqual([]);
    expect((await (await model.train(kept)).done()).metrics).toMatchObject({
      "data/sequences": 2,
      "data/sequences_per_rollout": 1,
      "data/drifted_turns": 0,
    });
  });
});

it("trainRl, its evaluations, and evaluateCheckpoints set the variable for every turn, and a resumed run must keep it", async () => {
  const { model, policy } = await start("preserve-thinking");
  const environment = defineEnvironment({
    name: "talk",
    scenarios: { train: ["hello"], eval: ["bye"] },
    rollout: conversation,
  });
  const runDir = await temporaryDirectory();
  const chatTemplateKwargs = { preserve_thinking: true };
  const options = { model, environment, steps: 1, scenariosPerStep: 1, groupSize: 2, evaluation: {}, progress: false, runDir } as const;
  await trainRl({ ...options, chatTemplateKwargs }).done;
  const run = await openRun(runDir);
  expect(run.series("data/sequences_per_rollout")).toEqual([[0, 1]]);
  expect(JSON.parse(await readFile(join(runDir, "config.json"), "utf8"))).toMatchObject({ chat_template_kwargs: chatTemplateKwargs });
  await expect(trainRl(options).done).rejects.toThrow(/`chat_template_kwargs` was \{"preserve_thinking":true\} and is now null/);

  const checkpoints = await temporaryDirectory();
  await evaluateCheckpoints({ model, environment, checkpoints: [0], runDir: checkpoints, progress: false, chatTemplateKwargs }).done;
  const { groups } = await evaluate(environment, policy, { progress: false, chatTemplateKwargs });
  for await (const group of concat(run.groups({ split: "eval" }), (await openRun(checkpoints)).groups({ split: "eval" }), groups))
    for (const trajectory of group.trajectories) expect(continuing(trajectory)).toBe(true);

  const { groups: dropped } = await evaluate(environment, policy, { progress: false });
  expect(dropped[0]!.trajectories.map(continuing)).toEqual([false]);
});

describe("supervised training on several turns with reasoning", () => {
  const turn = (index: number) => [
    { role: "user", content: `question ${index}` },
    { role: "assistant", content: `answer ${index}`, reasoning: `thought ${index}` },
  ];
  const messages = [0, 1, 2].flatMap(turn);

  it("needs the variable that keeps the reasoning, in the chat line", async () => {
    const { service, model, test } = await start("preserve-thinking");
    const train = async (example: object) => {
      const data = await uploadDataset(service, { project: "demo", name: "talks", train: [{ messages, ...example }] });
      return (await model.trainSft(data)).done();
    };
    await expect(train({})).rejects.toThrow(/does not extend/);
    await expect(train({ chatTemplateKwargs: { keep_thinking: true } })).rejects.toThrow(
      /`chat_template_kwargs` that the chat template reads, got `keep_thinking`/,
    );
    await train({ chatTemplateKwargs: { preserve_thinking: true } });
    const rows = test.engine.calls.flatMap(({ verb, detail }) => (verb === "forwardBackward" ? (detail as { rows: Row[] }).rows : []));
    const tokenizer = await loadTokenizer((await reasoningBase("preserve-thinking")).directory);
    expect(rows.map(({ tokens }) => tokenizer.decode(tokens))).toEqual([
      messages
        .map(({ role, content, reasoning }) =>
          role === "user" ? `<|user|>${content}<|end|>` : `<|assistant|><think>\n${reasoning}\n</think>\n\n${content}<|end|>`,
        )
        .join(""),
    ]);
  });
});

describe("an agent that does not know the template", () => {
  const [name, chatTemplateKwargs] = ["preserve-thinking", { preserve_thinking: true }] as const;

  it("has one history if `capture.trajectory` sets the variable", async () => {
    const { service, policy } = await start(name);
    const record = (options: object) =>
      capture.trajectory(
        async () => {
          await talk(service.inferenceUrl, service.apiKey, { model: policy.id }, capture.fetch);
          return { reward: 1 };
        },
        { policy, ...options },
      );
    expect(rowsOf(await record({}))).toBe(TURNS);
    const kept = await record({ chatTemplateKwargs });
    expect(rowsOf(kept)).toBe(1);
    expect(kept.choices).toHaveLength(TURNS);
  });

  it("has one history if its session sets the variable, also for requests with other variables", async () => {
    const { service, policy } = await start(name);
    const record = (samplingDefaults: object, body: object) =>
      capture.session(service, {
        model: policy.id,
        samplingDefaults,
        run: async ({ urls, key }) => {
          await talk(urls.openai, key, body);
          return { reward: 1 };
        },
      });
    const body = { chat_template_kwargs: { reasoning: 1 } };
    expect(rowsOf(await record({}, body))).toBe(TURNS);
    expect(rowsOf(await record({ chatTemplateKwargs }, body))).toBe(1);
    const own = { chat_template_kwargs: { preserve_thinking: false } };
    expect(rowsOf(await record({ chatTemplateKwargs }, own))).toBe(TURNS);
  });
});

it.each([
  ["none", false],
  ["preserve-thinking", false],
  ["none", true],
  ["clear-thinking", true],
] as const)(
  "an agent with tools has one history after one user message, with the template %s (reasoning is sent back: %s)",
  async (name, isSentBack) => {
    const call = '<tool_call>{"name": "look", "arguments": {"at": "here"}}</tool_call>';
    const end = name === "clear-thinking" ? "<|tool|>" : "";
    const { service, policy } = await start(name, { open: name === "none" ? "<think>\n" : "", close: `\n</think>\n\n${call}`, end });
    const messages: object[] = [{ role: "user", content: "look around" }];
    const tools = [{ type: "function", function: { name: "look", parameters: { type: "object" } } }];
    const recorded = await capture.session(service, {
      model: policy.id,
      run: async ({ urls, key }) => {
        for (let turn = 0; turn < TURNS; turn++) {
          const {
            content,
            reasoning,
            tool_calls: calls,
          } = await ask(`${urls.openai}/chat/completions`, key, { messages, tools, seed: turn });
          expect(calls).toHaveLength(1);
          messages.push({ role: "assistant", content, tool_calls: calls, ...(isSentBack ? { reasoning } : {}) });
          messages.push({ role: "tool", tool_call_id: calls![0]!.id, content: "a wall" });
        }
        return { reward: 1 };
      },
    });
    expect(recorded.choices[0]!.message.reasoning).toContain("let me think");
    expect(rowsOf(recorded)).toBe(1);
    expect(recorded.choices).toHaveLength(TURNS);
  },
);

describe("a variable that the template does not read", () => {
  it("is a preflight finding of rollouts, and does not change the prompt", async () => {
    const { policy, test } = await start("none");
    const options = { policy, groupSize: 2, seed: 1, progress: false } as const;
    const plain = await gatherTrajectoryGroups(["hello"], conversation, options);
    const unused = await gatherTrajectoryGroups(["hello"], conversation, { ...options, chatTemplateKwargs: { preserve_thinking: true } });
    expect(codesOf(plain)).toEqual(["separate-turns"]);
    expect(codesOf(unused)).toEqual(["separate-turns", "unused-template-kwargs"]);
    const [choice] = unused[0]!.trajectories[0]!.choices;
    expect(choice).toMatchObject({ unused_template_kwargs: ["preserve_thinking"] });
    expect(choice!.prompt_token_ids).toEqual(plain[0]!.trajectories[0]!.choices[0]!.prompt_token_ids);
    expect(test.log.filter(({ message }) => message.includes("chat_template_kwargs"))).toEqual([
      expect.objectContaining({ level: "warn", fields: { field: "preserve_thinking" } }),
    ]);
  });

  it("is in the answer of a request, whole or streamed, and in the trajectory of a session", async () => {
    const { service, policy } = await start("preserve-thinking");
    const request = {
      model: policy.id,
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 4,
      chat_template_kwargs: { preserve_thinking: true, keep_thinking: true },
    };
    expect(await service.chat.completions.create(request)).toMatchObject({ unused_template_kwargs: ["keep_thinking"] });
    const unused: unknown[] = [];
    for await (const chunk of service.chat.completions.create({ ...request, stream: true })) unused.push(chunk.unused_template_kwargs);
    expect(unused).toEqual([["keep_thinking"], ...unused.slice(1).map(() => undefined)]);
    const session = await capture.session(service, {
      model: policy.id,
      run: async ({ urls, key }) => {
        const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
        const response = await fetch(`${urls.openai}/chat/completions`, {
          method: "POST",
          headers,
          body: JSON.stringify({ ...request, stream: true }),
        });
        await response.text();
        return { reward: 1 };
      },
    });
    expect(session.choices[0]).toMatchObject({ unused_template_kwargs: ["keep_thinking"] });
  });
});
