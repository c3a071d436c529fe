/** Conversations of several turns keep their sampled ids in every dialect, and the dialects sample the same ids. */
import fc from "fast-check";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import type { TestServiceOptions } from "../../../src/testing/index.ts";
import { startService } from "../../../src/service/index.ts";
import { loadTokenizer } from "../../../src/text/tokenizer/index.ts";
import { startTestService, type TestService } from "../support.ts";
import { createSession, SESSIONS } from "../sessions/support.ts";
import { PLAYERS, TOKEN_PLAYERS, type Player, type Turn } from "./players.ts";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const DIRECTORY = fileURLToPath(new URL("../../../models/whetstone-tiny", import.meta.url));
const tokenizer = await loadTokenizer(DIRECTORY);
const END = tokenizer.eosTokenIds[0]!;
const spelled = (text: string): number[] => [...text].flatMap((letter) => [...tokenizer.encode(letter)]);

/** Runs of the property; `DIALECT_RUNS` asks for another number. */
const RUNS = Number(process.env["DIALECT_RUNS"] ?? 4);

interface Script {
  readonly text: string;
  readonly isSpelled: boolean;
  readonly isStreamed: boolean;
  readonly more: object;
}

/** Plays a conversation and checks that each prompt extends the previous prompt and its sampled ids. */
async function play(player: Player, turns: readonly Script[], prepare: (turn: Script) => void, tag = ""): Promise<Turn[]> {
  const played: Turn[] = [];
  for (const [index, turn] of turns.entries()) {
    player.say(`${tag}turn ${index}`);
    prepare(turn);
    const said = await player.ask(turn.more, turn.isStreamed);
    const before = played.at(-1);
    const known = before === undefined ? [] : [...before.prompt, ...before.ids];
    expect(said.prompt.slice(0, known.length), `${player.name}, turn ${index}`).toEqual(known);
    expect(said.logprobs).toHaveLength(said.ids.length);
    player.returnResults(said.calls);
    played.push(said);
  }
  return played;
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
  more: fc.constantFrom<object>({}, {}, {}, { max_tokens: 3 }, { stop_token_ids: [spelled("g")[0]!] }),
});

/** Starts a service with an engine that samples the text of the prepared turn. */
async function startScripted(limits: TestServiceOptions["limits"] = {}) {
  let next: readonly number[] = [];
  const bases = [{ id: "tiny", directory: DIRECTORY, vocabularySize: tokenizer.vocabularySize, contextLength: 20_000, parameters: 1 }];
  const test: TestService = await startTestService({ limits, engine: { bases, script: () => next } });
  const prepare = ({ text, isSpelled }: Script): void => {
    next = [...(isSpelled ? spelled(text) : tokenizer.encode(text)), END];
  };
  return { test, prepare };
}

describe.each(["none", "think"] as const)("with the reasoning parser %s", (reasoningParser) => {
  it("each prompt starts with the previous prompt and its sampled ids, the same in every dialect", async () => {
    const { test, prepare } = await startScripted({ chat: { reasoningParser } });
    let conversations = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 2, maxLength: 4 }), async (turns) => {
        const all: object[] = [];
        for (const create of PLAYERS) {
          // The key's memory of sampled ids is shared: a tag keeps one dialect from finding the turns of another.
          const tag = `[${conversations++}]`;
          const played = await play(create(test, "tiny"), turns, prepare, tag);
          all.push(played.map(({ prompt, ids }) => ({ text: tokenizer.decode(prompt).replaceAll(tag, ""), ids })));
        }
        for (const played of all) expect(played).toEqual(all[0]);
      }),
      { numRuns: RUNS },
    );
  }, 120_000);
});

it("with prompts of token ids, each prompt starts with the previous one and its sampled ids, and a session has one history", async () => {
  const { test, prepare } = await startScripted();
  await fc.assert(
    fc.asyncProperty(fc.array(turn, { minLength: 2, maxLength: 4 }), async (turns) => {
      for (const create of TOKEN_PLAYERS) {
        const { id, key } = await createSession(test);
        const player = create({ service: { url: test.service.url, apiKey: key } }, "any");
        const played = await play(player, turns, prepare);
        const { trajectory } = await test.ok("GET", `${SESSIONS}/${id}`);
        expect([player.name, trajectory.additional_histories, trajectory.logs]).toEqual([player.name, [], []]);
        const choices = trajectory.messages_and_choices.filter((item: any) => item.message !== undefined);
        expect(choices.map(({ prompt_token_ids: prompt, token_ids: ids }: any) => ({ prompt, ids }))).toEqual(
          played.map(({ prompt, ids }) => ({ prompt, ids })),
        );
      }
    }),
    { numRuns: RUNS },
  );
}, 120_000);

it("the same conversation with the same seed samples the same ids and log-probabilities in every dialect", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-dialects-"));
  const service = await startService({ dataDir });
  try {
    const turns = [{ more: { seed: 7, max_tokens: 12 } }, { more: { seed: 9, max_tokens: 8 } }].map(({ more }) => ({
      more,
      text: "",
      isSpelled: false,
      isStreamed: false,
    }));
    const all: Turn[][] = [];
    for (const create of PLAYERS) all.push(await play(create({ service }, "whetstone-tiny"), turns, () => undefined));
    expect(all[0]![0]!.ids.length).toBeGreaterThan(1);
    for (const played of all) expect(played).toEqual(all[0]!.map((said) => ({ ...said, calls: [] })));
  } finally {
    await service.close();
    await rm(dataDir, { recursive: true });
  }
});
