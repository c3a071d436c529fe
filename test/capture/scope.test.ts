/** The calls that a rollout records. */
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { conversation, expectOneRow, startHarness, tokenizer, turnsOf, type Harness } from "./support.ts";

const clientOf = ({ address }: Harness, options: object = {}) =>
  new OpenAI({ ...address, fetch: capture.fetch, maxRetries: 0, ...options });
const user = (content: string) => ({ role: "user" as const, content });

/** Asks one question and returns the answer. */
async function ask(client: OpenAI, model: string, content: string, more: object = {}): Promise<string> {
  const completion = await client.chat.completions.create({ model, messages: [user(content)], ...more });
  return completion.choices[0]?.message.content ?? "";
}

/** Returns the last user message backwards. */
const backwards = (prompt: string): string => {
  const said = prompt.split("<|user|>").at(-1)!.split("<|")[0]!.trim();
  return [...said].reverse().join("");
};

describe("the scope of a rollout", () => {
  it("keeps 200 parallel rollouts apart", async () => {
    const harness = await startHarness(backwards);
    const client = clientOf(harness);
    const rollouts = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        capture.trajectory(async () => {
          const said = await ask(client, harness.policy.id, `rollout ${index}`);
          await new Promise((resolve) => setTimeout(resolve, index % 7));
          await ask(client, harness.policy.id, `${said}!`);
          return { reward: index };
        }),
      ),
    );
    for (const [index, recorded] of rollouts.entries()) {
      const texts = turnsOf(recorded).map(({ ids }) => tokenizer.decode(ids.slice(0, -1)));
      const word = [...`rollout ${index}`].reverse().join("");
      expect(texts).toEqual([word, `!rollout ${index}`]);
      expect(recorded.reward).toBe(index);
    }
    expect(rollouts.flatMap(turnsOf)).toHaveLength(400);
  });

  it("sends requests unchanged with `tokens: false`, and joins their turns by messages", async () => {
    const harness = await startHarness(backwards);
    const bodies: unknown[] = [];
    const spy: typeof fetch = (input, init) => {
      bodies.push(JSON.parse(String(init?.body)));
      return fetch(input, init);
    };
    const client = clientOf(harness, { fetch: capture.wrap(spy) });
    const { id: model } = harness.policy;
    const recorded = await capture.trajectory(
      async () => {
        const messages: OpenAI.ChatCompletionMessageParam[] = [user("abc")];
        const first = await client.chat.completions.create({ model, messages });
        messages.push(first.choices[0]!.message, user("xyz"));
        await client.chat.completions.create({ model, messages });
        return { reward: 1 };
      },
      { policy: harness.policy, tokens: false },
    );
    expect(bodies.map((body) => Object.keys(body as object))).toEqual([
      ["model", "messages"],
      ["model", "messages"],
    ]);
    expect(recorded.additionalHistories).toHaveLength(0);
    expect(recorded.messages().map(({ content }) => content)).toEqual(["abc", "cba", "xyz", "zyx"]);
    expect(recorded.choices.map(({ token_ids: ids }) => ids ?? null)).toEqual([null, null]);
  });

  it("keeps the calls of a nested scope out of the outer scope", async () => {
    const harness = await startHarness(backwards);
    const client = clientOf(harness);
    const { id } = harness.policy;
    let inner: Awaited<ReturnType<typeof capture.trajectory>> | undefined;
    const outer = await capture.trajectory(async () => {
      await ask(client, id, "outer one");
      inner = await capture.trajectory(async () => ({ reward: (await ask(client, id, "inner")).length }));
      await ask(client, id, "outer two");
      return { reward: 0 };
    });
    expect(inner!.messages().map((message) => message.content)).toEqual(["inner", "renni"]);
    expect(inner!.reward).toBe(5);
    expect(turnsOf(outer).map(({ ids }) => tokenizer.decode(ids.slice(0, -1)))).toEqual(["eno retuo", "owt retuo"]);
  });

  it("excludes judges: without a policy, models that are not trainable; with a policy, every other model", async () => {
    const harness = await startHarness(backwards);
    const client = clientOf(harness);
    const other = await harness.service.models.create({ project: "demo", name: "judge", baseModel: "tiny" });
    const { id: judge } = await other.policy();
    const play = async () => {
      await ask(client, "tiny", "base");
      await ask(client, judge, "judge");
      await ask(client, harness.policy.id, "agent");
      return { reward: 1 };
    };
    const texts = async (options: object) =>
      turnsOf(await capture.trajectory(play, options)).map(({ ids }) => tokenizer.decode(ids.slice(0, -1)));
    expect(await texts({ policy: harness.policy })).toEqual(["tnega"]);
    expect(await texts({ policy: { id: "tiny" } })).toEqual(["esab"]);
    expect(await texts({})).toEqual(["egduj", "tnega"]);
    expect(await texts({ baseUrl: harness.service.inferenceUrl })).toEqual(["egduj", "tnega"]);
    await expect(texts({ baseUrl: "http://elsewhere.example/v1" })).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: expect.stringContaining(`seen were calls to tiny, ${judge}, ${harness.policy.id}`),
    });
  });

  it("leaves requests to other models unchanged", async () => {
    const bodies: unknown[] = [];
    const answer = {
      id: "c",
      object: "chat.completion",
      created: 1,
      model: "m",
      choices: [{ index: 0, message: { role: "assistant", content: "x" } }],
      usage: {},
    };
    const fetch = capture.wrap((_, init) => {
      bodies.push(JSON.parse(String(init?.body)));
      return Promise.resolve(Response.json(answer));
    });
    const client = new OpenAI({ apiKey: "k", baseURL: "http://models.example/v1", fetch });
    await capture.trajectory(async () => {
      await ask(client, "judge", "one");
      await ask(client, "a/b/c:step1", "two", { temperature: 0.5 });
      return { reward: 0 };
    });
    await ask(client, "a/b/c:step1", "outside");
    expect(bodies).toEqual([
      { model: "judge", messages: [user("one")] },
      { model: "a/b/c:step1", messages: [user("two")], temperature: 0.5, logprobs: true, return_token_ids: true },
      { model: "a/b/c:step1", messages: [user("outside")] },
    ]);
  });

  it("records the sampling settings of a turn, so that preflight can check them", async () => {
    const harness = await startHarness(backwards);
    const recorded = await capture.trajectory(async () => {
      await ask(clientOf(harness), harness.policy.id, "warm", { temperature: 0.5, top_p: 0.9 });
      return { reward: 1 };
    });
    expect(recorded.choices[0]).toMatchObject({ temperature: 0.5, top_p: 0.9 });
  });

  it("takes the step from the response, or from the policy if the response has none", async () => {
    const answer = (model: string) => ({ id: "c", model, choices: [{ message: { role: "assistant", content: "x" } }], usage: {} });
    const play = async (model: string) => {
      const fetch = capture.wrap(() => Promise.resolve(Response.json(answer(model))));
      const client = new OpenAI({ apiKey: "k", baseURL: "http://models.example/v1", fetch });
      const run = async () => ({ reward: (await ask(client, "a/b/c:step4", "x")).length });
      return (await capture.trajectory(run, { policy: { id: "a/b/c:step4", step: 4 } })).initialPolicyVersion;
    };
    expect(await play("a/b/c:step7")).toBe(7);
    expect(await play("a/b/c")).toBe(4);
  });
});

describe("the end of a rollout", () => {
  it("waits for a call that the agent did not await", async () => {
    const harness = await startHarness(backwards);
    const recorded = await capture.trajectory(() => {
      const { baseURL, apiKey } = harness.address;
      void capture.fetch(`${baseURL}/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
        body: JSON.stringify({ model: harness.policy.id, messages: [user("late")] }),
      });
      return { reward: 0 };
    });
    expect(turnsOf(recorded)).toEqual(harness.sampled);
    expect(harness.sampled).toHaveLength(1);
  });

  it("stops waiting for a response after the timeout, and logs it", async () => {
    let isCalled = false;
    const fetch = capture.wrap((_, init) => {
      if (isCalled) return new Promise((__, reject) => init?.signal?.addEventListener("abort", () => reject(new Error("ended"))));
      isCalled = true;
      return Promise.resolve(
        Response.json({ id: "c", model: "a/b/c", choices: [{ message: { role: "assistant", content: "x" } }], usage: {} }),
      );
    });
    const body = JSON.stringify({ model: "a/b/c", messages: [user("hi")] });
    const post = () => fetch("http://models.example/v1/chat/completions", { method: "POST", body });
    const recorded = await capture.trajectory(
      async () => {
        await (await post()).text();
        void post().catch(() => {});
        return { reward: 0 };
      },
      { settleTimeoutMs: 20 },
    );
    expect(recorded.choices).toHaveLength(1);
    expect(recorded.logs).toEqual([expect.stringContaining("1 calls had no whole answer 20 ms after")]);
  });

  it("does not record calls made after the rollout ended", async () => {
    const harness = await startHarness(backwards);
    const client = clientOf(harness);
    const ended = deferred<void>();
    let later: Promise<string> | undefined;
    const recorded = await capture.trajectory(async () => {
      await ask(client, harness.policy.id, "now");
      later = ended.promise.then(() => ask(client, harness.policy.id, "then"));
      return { reward: 0 };
    });
    ended.resolve();
    expect(recorded.choices).toHaveLength(1);
    expect(await later).toBe("neht");
    expect(recorded.choices).toHaveLength(1);
  });

  it("rethrows the agent's error, and reports the reason if no turn was captured", async () => {
    const harness = await startHarness(backwards);
    const failure = new Error("the agent is broken");
    await expect(capture.trajectory(() => Promise.reject(failure))).rejects.toBe(failure);
    const plain = clientOf(harness, { fetch: undefined });
    await expect(capture.trajectory(async () => ({ reward: (await ask(plain, harness.policy.id, "x")).length }))).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: expect.stringMatching(/No turn was captured.*no other sampling request was seen.*capture\.fetch/),
    });
    const once = async (reward: number) =>
      capture.trajectory(async () => ({ reward: (await ask(clientOf(harness), harness.policy.id, "x")) === "x" ? reward : 0 }));
    await expect(once(Number.NaN)).rejects.toMatchObject({ code: "E_ARGUMENT", param: "reward" });
    await expect(capture.trajectory(() => ({ reward: 1 }), { settleTimeoutMs: -1 })).rejects.toMatchObject({ param: "settleTimeoutMs" });
    await expect(capture.trajectory(() => ({ reward: 1 }), { policy: { id: "" } })).rejects.toMatchObject({ param: "policy" });
    await expect(capture.trajectory(() => ({ reward: 1 }), { baseUrl: "nowhere" })).rejects.toMatchObject({ param: "baseUrl" });
  });

  it("rejects with the signal's reason, and aborts calls that do not use the signal", async () => {
    const abort = new AbortController();
    const reason = new Error("enough");
    const harness = await startHarness(
      () => "a".repeat(50),
      async ({ verb, detail }, { signal }) => {
        if (verb !== "sampleToken" || detail !== 3) return;
        abort.abort(reason);
        await new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
      },
    );
    const run = async () => ({ reward: (await ask(clientOf(harness), harness.policy.id, "x")).length });
    await expect(capture.trajectory(run, { signal: abort.signal })).rejects.toBe(reason);
    await expect(capture.trajectory(run, { signal: abort.signal })).rejects.toBe(reason);
    expect(harness.sampled).toHaveLength(1);
  });
});

describe("failed calls", () => {
  it("records the retry, not the failed attempt", async () => {
    const harness = await startHarness(conversation);
    let attempts = 0;
    const flaky = capture.wrap((input, init) => {
      attempts++;
      if (attempts === 1)
        return Promise.resolve(Response.json({ error: { message: "busy" } }, { status: 429, headers: { "retry-after-ms": "1" } }));
      if (attempts === 2) return Promise.reject(new TypeError("fetch failed"));
      return globalThis.fetch(input, init);
    });
    const client = clientOf(harness, { fetch: flaky, maxRetries: 3 });
    const recorded = await capture.trajectory(async () => {
      await ask(client, harness.policy.id, "x");
      return { reward: 0 };
    });
    expect(attempts).toBe(3);
    expect(turnsOf(recorded)).toEqual(harness.sampled);
    expect(recorded.logs).toEqual([expect.stringContaining("the service answered 429"), expect.stringContaining("TypeError")]);
  });

  it("never writes an API key into a trajectory, a log or an error", async () => {
    const secret = "sk-very-secret";
    const fetch = capture.wrap((_, init) => {
      throw new TypeError(`bad header ${new Headers(init?.headers).get("authorization")}`);
    });
    const client = new OpenAI({ apiKey: secret, baseURL: "http://models.example/v1", fetch, maxRetries: 1 });
    const failed = await capture
      .trajectory(async () => {
        await ask(client, "a/b/c", "x").catch(() => {});
        return { reward: 0 };
      })
      .catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: "E_ARGUMENT", message: expect.stringContaining("TypeError") });
    expect(`${String(failed)} ${JSON.stringify(failed)}`).not.toContain(secret);

    const harness = await startHarness(backwards);
    const recorded = await capture.trajectory(async () => ({ reward: (await ask(clientOf(harness), harness.policy.id, "x")).length }));
    expect(JSON.stringify(recorded)).not.toContain(harness.address.apiKey);
    expect(JSON.stringify(recorded).toLowerCase()).not.toContain("authorization");
  });
});

it("trains on a captured group", async () => {
  const harness = await startHarness(backwards);
  const client = clientOf(harness);
  const rollout = (word: string, reward: number) =>
    capture.trajectory(async () => {
      await ask(client, harness.policy.id, word);
      return { reward };
    });
  const group = new TrajectoryGroup({ trajectories: [await rollout("one", 1), await rollout("two", 0)] });
  const model = await harness.service.models.create({ project: "demo", name: "agent", baseModel: "tiny", returnExisting: true });
  const job = await model.train([group]);
  expect(await job.done()).toMatchObject({ step: 1, metrics: { "data/sequences": 2, "data/drifted_turns": 0 } });
});

it("records a conversation once through a fetch inside another fetch", async () => {
  const harness = await startHarness(conversation);
  const client = clientOf(harness, { fetch: capture.wrap(capture.fetch) });
  const recorded = await capture.trajectory(async () => ({ reward: (await ask(client, harness.policy.id, "x")).length }));
  expectOneRow(recorded, harness);
});
