/** Conversations through every API dialect become the same trajectory. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { connect } from "../../src/index.ts";
import { shippedModel } from "../clients/support.ts";
import { PLAYERS, type Player, type Target } from "../service/dialects/players.ts";
import { comparable, spelled, startHarness, tokenizer } from "./support.ts";

/** Runs of the property; `DIALECT_RUNS` asks for another number. */
const RUNS = Number(process.env["DIALECT_RUNS"] ?? 3);

interface Script {
  readonly text: string;
  readonly isSpelled: boolean;
  readonly isStreamed: boolean;
  readonly more: object;
}

async function play(player: Player, turns: readonly Script[], prepare: (turn: Script) => void = () => undefined): Promise<void> {
  for (const [index, turn] of turns.entries()) {
    player.say(`turn ${index}`);
    prepare(turn);
    const said = await player.ask(turn.more, turn.isStreamed);
    player.returnResults(said.calls);
  }
}

const words = fc
  .array(fc.constantFrom("the ", "and ", "naïve ", "<answer>", "🦊", "\n", "it", "ing", "<tool_call>"), { maxLength: 5 })
  .map((parts) => parts.join(""));
const call = fc
  .tuple(fc.constantFrom("add", "sub"), fc.dictionary(fc.constantFrom("a", "the", "é", "1"), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 }))
  .map(([name, args]) => `<tool_call>{"name": "${name}",  "arguments": ${JSON.stringify(args, null, name === "sub" ? 1 : 0)}}</tool_call>`);
const thoughts = fc.constantFrom("", "<think>the the</think>", "the plan\n</think>\n\n", "<think></think>", "<think>it");
const turn = fc.record({
  text: fc.tuple(thoughts, words, fc.array(call, { maxLength: 2 })).map(([thought, said, calls]) => thought + said + calls.join("")),
  isStreamed: fc.boolean(),
  isSpelled: fc.boolean(),
  more: fc.constantFrom<object>({}, {}, { temperature: 0.5 }, { max_tokens: 3 }, { top_p: 0.9 }),
});

it.each(["none", "think"] as const)(
  "random conversations are captured as through chat completions and as sessions record them, with the reasoning parser %s",
  async (reasoningParser) => {
    let next: readonly number[] = [];
    const { service, policy, test } = await startHarness(() => "", undefined, { reasoningParser, script: () => next });
    const prepare = ({ text, isSpelled }: Script): void => {
      next = [...(isSpelled ? spelled(text) : tokenizer.encode(text)), tokenizer.eosTokenIds[0]!];
    };
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 2, maxLength: 4 }), async (turns) => {
        const all: unknown[] = [];
        for (const create of PLAYERS) {
          // A session per conversation, so that no other conversation is in the memory of sampled ids.
          const { id, key } = await service.sessions.create({ model: policy.id });
          const target: Target = { service: { url: test.service.url, apiKey: key }, fetch: capture.fetch, extensions: {} };
          const player = create(target, policy.id);
          const captured = await capture.trajectory(async () => {
            await play(player, turns, prepare);
            return { reward: 1 };
          });
          expect([player.name, captured.logs, captured.additionalHistories]).toEqual([player.name, [], []]);
          expect(captured.choices.map((choice) => choice.policy_version)).toEqual(turns.map(() => policy.step));
          all.push(comparable(captured.toJSON()));
          expect(all.at(-1), `${player.name}, session`).toEqual(comparable(await service.sessions.trajectory(id)));
        }
        for (const [index, one] of all.entries()) expect(one, `player ${index}`).toEqual(all[0]);
      }),
      { numRuns: RUNS },
    );
  },
  120_000,
);

const { baseURL, apiKey, model } = await shippedModel();

it("a seeded conversation with the shipped model is captured with the same ids and log-probabilities in every dialect", async () => {
  await using service = await connect({ baseUrl: baseURL.replace(/\/v1$/u, ""), apiKey });
  for (const isStreamed of [false, true]) {
    const turns = [
      { seed: 7, max_tokens: 12 },
      { seed: 9, max_tokens: 8 },
    ].map((more) => ({ more, text: "", isSpelled: false, isStreamed }));
    const all: unknown[] = [];
    for (const create of PLAYERS) {
      const { id, key } = await service.sessions.create({ model });
      const target: Target = { service: { url: baseURL.replace(/\/v1$/u, ""), apiKey: key }, fetch: capture.fetch, extensions: {} };
      const captured = await capture.trajectory(
        async () => {
          await play(create(target, model), turns);
          return { reward: 1 };
        },
        { policy: { id: model } },
      );
      expect(captured.choices.map(({ token_ids: ids }) => ids!.length)).toEqual(
        captured.choices.map((choice) => choice.logprobs!.content!.length),
      );
      all.push(comparable(captured.toJSON()));
      expect(all.at(-1)).toEqual(comparable(await service.sessions.trajectory(id)));
    }
    for (const one of all) expect(one).toEqual(all[0]);
  }
});
