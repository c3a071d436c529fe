/** Behaviours of sampling, required of every engine. */
import { describe, expect, it, onTestFinished } from "vitest";
import type { PolicyVersion, SamplingParams } from "../../../src/engine/port.ts";
import {
  BASE,
  codeOf,
  CONTEXT,
  distribution,
  newModel,
  params,
  rowAfter,
  sampleAll,
  type SamplingRule,
  scratchDirectory,
  type Subject,
  tokensOf,
  train,
  VOCABULARY,
} from "./subject.ts";

const prompt = tokensOf(4);

/** A rule that a request may carry: every output shows it where the engine carries it out; elsewhere the request is refused. */
const RULES: readonly (readonly [SamplingRule, Partial<SamplingParams>, (ids: readonly number[], free: readonly number[]) => boolean])[] = [
  ["allowedTokenIds", { allowedTokenIds: [3, 5, 7] }, (ids) => ids.every((id) => [3, 5, 7].includes(id))],
  [
    "bannedSequences",
    { bannedSequences: Array.from({ length: VOCABULARY - 2 }, (_, id) => [id + 2]) },
    (ids) => ids.every((id) => id === 0 || id === 1),
  ],
  [
    "minTokens",
    {
      minTokens: 3,
      lateTokenIds: Array.from({ length: VOCABULARY - 1 }, (_, id) => id + 1),
      stopTokenIds: Array.from({ length: VOCABULARY - 1 }, (_, id) => id + 1),
    },
    (ids) => ids.slice(0, 3).every((id) => id === 0),
  ],
  ["logitBias", { logitBias: new Map([[9, 100]]) }, (ids) => ids.every((id) => id === 9)],
  ["minP", { minP: 1 }, (ids, greedy) => ids[0] === greedy[0]],
  ["frequencyPenalty", { temperature: 0, frequencyPenalty: 1e4 }, (ids) => new Set(ids).size === ids.length],
  ["presencePenalty", { temperature: 0, presencePenalty: 1e4 }, (ids) => new Set(ids).size === ids.length],
  ["repetitionPenalty", { temperature: 0, repetitionPenalty: 1e6 }, (ids) => new Set(ids).size === ids.length],
  ["topLogprobs", { topLogprobs: 1 }, () => true],
  ["promptLogprobs", { promptLogprobs: 0 }, () => true],
];

/** Declares the tests; `get` gives the engine once it has started. */
export function samplingBehaviours(get: () => Subject): void {
  async function basePolicy(): Promise<PolicyVersion> {
    const { engine } = get();
    const policy = await engine.loadPolicy({ base: BASE });
    onTestFinished(() => engine.release(policy));
    return policy;
  }

  describe("a policy", () => {
    it("samples with the trainer's log-probabilities", async () => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model);
      const policy = await engine.publish(model);
      const tokens = await sampleAll(engine, policy, prompt, params(1));
      const [full] = await engine.forward(model, [
        rowAfter(
          prompt,
          tokens.map(({ id }) => id),
        ),
      ]);
      expect(tokens).toHaveLength(8);
      tokens.forEach(({ logprob }, k) => expect(Math.abs(logprob - full![prompt.length + k]!)).toBeLessThan(2e-5));
      await engine.release(policy);
    });

    it("keeps its weights after publication, loads from a saved state, and is not found once released", async () => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model, 1);
      const path = await scratchDirectory();
      await engine.saveState(model, path);
      const first = await engine.publish(model);
      const before = await sampleAll(engine, first, prompt, params(3));
      await train(engine, model, 2);
      const second = await engine.publish(model);
      const after = await sampleAll(engine, second, prompt, params(3));
      expect(Math.abs(after[0]!.logprob - before[0]!.logprob) + Math.abs(after[0]!.id - before[0]!.id)).toBeGreaterThan(1e-3);
      // Sampling from the newer one, and training, must not have moved the older.
      expect(await sampleAll(engine, first, prompt, params(3))).toEqual(before);
      const loaded = await engine.loadPolicy({ base: BASE, state: path });
      expect((await sampleAll(engine, loaded, prompt, params(3))).map(({ id }) => id)).toEqual(before.map(({ id }) => id));
      for (const policy of [first, second, loaded]) await engine.release(policy);
      expect(await codeOf(sampleAll(engine, first, prompt, params(3)))).toBe("E_NOT_FOUND");
    });

    it("does not change the model when it is sampled", async () => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model, 1);
      const old = await engine.publish(model);
      await train(engine, model, 2);
      const row = rowAfter(prompt, [1, 2, 3]);
      const before = await engine.forward(model, [row]);
      await sampleAll(engine, old, prompt, params(1));
      expect(await engine.forward(model, [row])).toEqual(before);
      await engine.release(old);
    });

    it("samples after a long prompt with the trainer's log-probabilities, also after a prompt with the same beginning", async () => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model);
      const long = tokensOf(4, 52);
      const lastOf = async (...prompts: readonly Int32Array[]) => {
        const policy = await engine.publish(model);
        onTestFinished(() => engine.release(policy));
        const outputs = [];
        for (const each of prompts) outputs.push(await sampleAll(engine, policy, each, params(1)));
        return outputs.at(-1)!;
      };
      const outputs = [await lastOf(long), await lastOf(long.subarray(0, 37), long), await lastOf(Int32Array.of(...long, 1), long)];
      const ids = outputs[0]!.map(({ id }) => id);
      const [full] = await engine.forward(model, [rowAfter(long, ids)]);
      for (const tokens of outputs) {
        expect(tokens.map(({ id }) => id)).toEqual(ids);
        tokens.forEach(({ logprob }, k) => expect(Math.abs(logprob - full![long.length + k]!)).toBeLessThan(2e-5));
      }
    });

    it("of a base model samples with the base's log-probabilities", async () => {
      const { engine, lora } = get();
      const tokens = await sampleAll(engine, await basePolicy(), prompt, params(2));
      const fresh = await engine.createModel({ base: BASE, seed: 0, lora });
      const [full] = await engine.forward(fresh, [
        rowAfter(
          prompt,
          tokens.map(({ id }) => id),
        ),
      ]);
      tokens.forEach(({ logprob }, k) => expect(Math.abs(logprob - full![prompt.length + k]!)).toBeLessThan(2e-5));
      await engine.unload(fresh);
    });
  });

  describe("a token", () => {
    it("is the same for the same seed, differs for another seed, and is the most likely at temperature 0 or with one candidate", async () => {
      const { engine, lora } = get();
      const policy = await basePolicy();
      const [a, b, c] = await Promise.all([42, 42, 43].map((seed) => sampleAll(engine, policy, prompt, params(seed))));
      expect(b).toEqual(a);
      expect(c!.map(({ id }) => id)).not.toEqual(a!.map(({ id }) => id));
      const model = await engine.createModel({ base: BASE, seed: 0, lora });
      const all = await distribution(engine, model, prompt);
      await engine.unload(model);
      const best = all.indexOf(Math.max(...all));
      for (const more of [{ temperature: 0 }, { topK: 1 }, { topP: 1e-6 }]) {
        const [first] = await sampleAll(engine, policy, prompt, params(5, { maxTokens: 1, ...more }));
        expect([first!.id, Math.abs(first!.logprob - all[best]!) < 2e-5]).toEqual([best, true]);
      }
    });

    it("is drawn in proportion to its probability; the temperature changes the draw and not the reported log-probability", async () => {
      const { engine, lora, draws } = get();
      const policy = await basePolicy();
      const model = await engine.createModel({ base: BASE, seed: 0, lora });
      const all = await distribution(engine, model, prompt);
      await engine.unload(model);
      for (const temperature of [1, 0.25]) {
        const options = (seed: number) => params(seed, { maxTokens: 1, temperature });
        const tokens = await Promise.all(Array.from({ length: draws }, (_, seed) => sampleAll(engine, policy, prompt, options(seed))));
        const total = all.reduce((sum, logprob) => sum + Math.exp(logprob / temperature), 0);
        // Pearson's statistic has a mean of V − 1 and a deviation of √(2(V − 1)).
        let statistic = 0;
        for (const [id, logprob] of all.entries()) {
          const expected = (draws * Math.exp(logprob / temperature)) / total;
          const found = tokens.filter(([token]) => token!.id === id).length;
          statistic += (found - expected) ** 2 / expected;
        }
        expect(statistic).toBeLessThan(VOCABULARY - 1 + 6 * Math.sqrt(2 * (VOCABULARY - 1)));
        for (const [token] of tokens.slice(0, 5)) expect(Math.abs(token!.logprob - all[token!.id]!)).toBeLessThan(2e-5);
      }
    });

    it.each(RULES)("%s: applied, or rejected by an engine without it", async (name, more, holds) => {
      const { engine, rules } = get();
      const policy = await basePolicy();
      const greedy = await sampleAll(engine, policy, prompt, params(0, { temperature: 0 }));
      const work = sampleAll(engine, policy, prompt, params(11, { maxTokens: 6, ...more }));
      // A value above the engine's bound is an invalid argument; a rule that the engine lacks is unsupported.
      if (!rules.has(name)) return expect(await codeOf(work)).toBe(name === "topLogprobs" ? "E_ARGUMENT" : "E_UNSUPPORTED");
      const tokens = await work;
      expect(
        holds(
          tokens.map(({ id }) => id),
          greedy.map(({ id }) => id),
        ),
      ).toBe(true);
      if (name === "topLogprobs") for (const { top } of tokens) expect(top).toHaveLength(1);
      if (name === "promptLogprobs") expect(tokens[0]!.prompt).toHaveLength(prompt.length - 1);
    });

    it("does not depend on the rules of other requests, earlier or at the same time", async () => {
      const { engine, rules } = get();
      const policy = await basePolicy();
      const sample = async (seed: number, more: Partial<SamplingParams> = {}) =>
        (await sampleAll(engine, policy, tokensOf(4, 5 + seed), params(seed, more))).map(({ id }) => id);
      const options = [{}, ...RULES.filter(([name]) => rules.has(name)).map(([, more]) => more)];
      const alone: number[][] = [];
      for (const [seed, more] of options.entries()) alone.push(await sample(seed, more));
      expect(await Promise.all(options.map((more, seed) => sample(seed, more)))).toEqual(alone);
      for (const [seed, more] of [...options.entries()].toReversed()) expect(await sample(seed, more)).toEqual(alone[seed]);
    });
  });

  describe("a sequence", () => {
    it("ends with a stop id included, at the token limit, and at the end of the context", async () => {
      const { engine } = get();
      const policy = await basePolicy();
      const free = await sampleAll(engine, policy, prompt, params(42));
      expect(free.map(({ finish }) => finish)).toEqual([...Array.from({ length: 7 }, () => undefined), "length"]);
      const stop = free[4]!.id;
      const stopped = await sampleAll(engine, policy, prompt, params(42, { stopTokenIds: [stop] }));
      expect(stopped).toHaveLength(free.findIndex(({ id }) => id === stop) + 1);
      expect(stopped.at(-1)).toMatchObject({ id: stop, finish: "stop" });
      const long = tokensOf(2, CONTEXT - 3);
      const cut = await sampleAll(engine, policy, long, params(1, { maxTokens: 100 }));
      expect([cut.length, cut.at(-1)!.finish]).toEqual([3, "length"]);
    });

    it("rejects with the signal's own reason; an aborted request or a closed reader does not disturb later requests", async () => {
      const { engine } = get();
      const policy = await basePolicy();
      const reason = new Error("enough");
      await expect(sampleAll(engine, policy, prompt, params(1), { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
      const controller = new AbortController();
      const running = (async () => {
        for await (const token of engine.sample(policy, prompt, params(1, { maxTokens: 40 }), { signal: controller.signal }))
          if (token) controller.abort(reason);
      })();
      await expect(running).rejects.toBe(reason);
      for await (const token of engine.sample(policy, prompt, params(1, { maxTokens: 40 }))) {
        expect(token.id).toBeLessThan(VOCABULARY);
        break;
      }
      expect(await sampleAll(engine, policy, prompt, params(1))).toHaveLength(8);
    });

    it("is rejected for a prompt or parameter out of bounds, naming the parameter", async () => {
      const { engine } = get();
      const policy = await basePolicy();
      for (const [param, ids, more] of [
        ["prompt", Int32Array.of(VOCABULARY), {}],
        ["prompt", new Int32Array(0), {}],
        ["prompt", new Int32Array(CONTEXT), {}],
        ["maxTokens", prompt, { maxTokens: 0 }],
        ["temperature", prompt, { temperature: -1 }],
        ["topP", prompt, { topP: 0 }],
        ["topLogprobs", prompt, { topLogprobs: engine.capabilities().maxTopLogprobs + 1 }],
      ] as const)
        await expect(sampleAll(engine, policy, ids, params(1, more))).rejects.toMatchObject({
          code: "E_ARGUMENT",
          param,
          retryable: false,
        });
    });
  });
}
