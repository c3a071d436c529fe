import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Text that would execute, load or escape if it were parsed as markup. */
export const HOSTILE = `</script><script>window.hacked = 1</script><img src="https://evil.example/x.png" onerror="window.hacked = 2"><!-- \u2028\u2029 '"\``;

/** Tokens that split the euro sign (e2 82 ac) between the second and third byte. */
const EURO = [
  { token: "cost ", bytes: [99, 111, 115, 116, 32] },
  { token: "", bytes: [0xe2, 0x82] },
  { token: "", bytes: [0xac] },
  { token: "\n", bytes: [10] },
];

interface SampledOptions {
  readonly content?: string;
  readonly tokens?: readonly { readonly token: string; readonly bytes?: readonly number[] | null }[];
  readonly more?: object;
}

/** Returns a sampled turn; the log-probability of each token is `−(index + 1) / 10`. */
export function sampled({ content = "cost €\n", tokens = EURO, more = {} }: SampledOptions = {}): object {
  return {
    index: 0,
    message: { role: "assistant", content, ...more },
    finish_reason: "stop",
    prompt_token_ids: [1, 2, 3],
    token_ids: tokens.map((_, index) => 100 + index),
    logprobs: { content: tokens.map((token, index) => ({ ...token, logprob: -(index + 1) / 10, top_logprobs: [] })) },
    policy_version: 4,
  };
}

export function trajectoryLine(reward: number, more: object = {}): object {
  return {
    messages_and_choices: [{ role: "user", content: "What does it cost?" }, sampled()],
    tools: null,
    additional_histories: [],
    reward,
    initial_policy_version: 4,
    final_policy_version: 4,
    metrics: { duration: 2, sample_duration: 1.5, exact: reward === 1 },
    metadata: {},
    logs: [],
    start_time: "2026-01-02T03:04:05.000Z",
    ...more,
  };
}

const TOOL_CALL = { id: "call_1", type: "function", function: { name: "lookup", arguments: '{"item":"pen"}' } };

/** Returns a conversation with a tool and a sub-agent; its first text is hostile. */
const WITH_TOOLS = trajectoryLine(1, {
  messages_and_choices: [
    { role: "system", content: HOSTILE },
    { role: "user", content: [{ type: "text", text: "What does the pen cost?" }, { type: "image_url" }] },
    sampled({ content: "", tokens: [{ token: "<call>", bytes: null }], more: { tool_calls: [TOOL_CALL] } }),
    { role: "tool", tool_call_id: "call_1", content: '{"price":3}' },
    sampled(),
  ],
  additional_histories: [
    { messages_and_choices: [{ role: "user", content: "sub-agent question" }, sampled({ content: "€" })], tools: null },
  ],
  tools: [{ type: "function", function: { name: "lookup", description: "Finds a price" } }],
  metadata: { note: HOSTILE },
  logs: [`log ${HOSTILE}`],
});

export function groupLine(index: number, step: number, trajectories: readonly object[]): object {
  const exceptions = index === 1 ? [{ type: "TimeoutError", message: `took too long ${HOSTILE}`, traceback: "at rollout" }] : [];
  const metadata = { step, scenario_index: index, scenario_id: `item-${index}`, seed: 7 };
  return { trajectories, exceptions, metadata, metrics: {}, logs: [] };
}

const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
const name = (step: number) => `${String(step).padStart(6, "0")}.jsonl`;

/** Options of {@link writeRun}. */
export interface RunFixtureOptions {
  /** Number of training steps. @default 3 */
  readonly steps?: number;
  /** Whether the last step has a file of the trainer's log-probabilities. @default true */
  readonly trained?: boolean;
}

/**
 * Writes a run directory of literal data: each step has a group with tools and one with a failed rollout, which step 1 discards.
 * Returns its path.
 */
export async function writeRun({ steps = 3, trained = true }: RunFixtureOptions = {}): Promise<string> {
  const runDir = await mkdtemp(join(tmpdir(), "whetstone-report-"));
  const at = (...parts: string[]) => join(runDir, ...parts);
  for (const folder of ["trajectories/train", "trajectories/eval", "trained"]) await mkdir(at(folder), { recursive: true });
  await writeFile(
    at("config.json"),
    JSON.stringify({
      name: `prices ${HOSTILE}`,
      model: "whetstone-tiny",
      groups: { size: 3 },
      service: { apiKey: "very-private", maxTokens: 5 },
    }),
  );
  const rows: object[] = [];
  for (let step = 0; step < steps; step++) {
    const time = new Date(Date.UTC(2026, 0, 2, 3, 4, 5 + step)).toISOString();
    rows.push({
      step,
      split: "train",
      time,
      "reward/mean": step === 1 ? 0.9 : 0.5,
      "reward/std": 0.1,
      loss: -0.25 * step,
      "custom/number": 7,
    });
    const groups = [
      groupLine(0, step, [WITH_TOOLS, trajectoryLine(0), trajectoryLine(0)]),
      groupLine(1, step, [trajectoryLine(0.5), trajectoryLine(0.5)]),
    ];
    await writeFile(at("trajectories/train", name(step)), lines(groups));
  }
  rows.push({ step: steps - 1, split: "eval", time: "2026-01-02T03:05:05.000Z", "eval/reward/mean": 0.75 });
  await writeFile(at("trajectories/eval", name(steps - 1)), lines([groupLine(0, steps - 1, [trajectoryLine(0.75)])]));
  // The last line is truncated.
  await writeFile(at("metrics.jsonl"), `${lines(rows)}{"step":9,"split":"tr`);
  if (trained) {
    const turn = (count: number) => ({ advantage: 0.5, logprobs: Array.from({ length: count }, (_, index) => -(index + 1) / 10 + 0.03) });
    // Three turns: two of the conversation, one of the sub-agent.
    await writeFile(
      at("trained", name(steps - 1)),
      lines([{ scenario_index: 0, trajectory_index: 0, turns: [turn(1), turn(4), turn(4)] }]),
    );
  }
  const checkpoint = (step: number, event: string) => ({
    time: "2026-01-02T03:04:09.000Z",
    event,
    step,
    id: `c${step}`,
    metrics: { "reward/mean": 0.5 },
  });
  await writeFile(at("checkpoints.jsonl"), lines([checkpoint(1, "created"), checkpoint(2, "created"), checkpoint(1, "deleted")]));
  await writeFile(
    at("events.jsonl"),
    lines([
      { seq: 0, time: "2026-01-02T03:04:00.000Z", type: "run-start" },
      { seq: 1, time: "2026-01-02T03:04:06.000Z", type: "warning", step: 1, message: `careful ${HOSTILE}` },
      { seq: 2, time: "2026-01-02T03:04:06.000Z", type: "batch-end", step: 1, sampled: 2, kept: 1, discarded_scenarios: [1] },
      { seq: 3, time: "2026-01-02T03:05:05.000Z", type: "run-end", reason: "completed" },
    ]),
  );
  return runDir;
}

/** Returns the data inside a page. */
export function dataOf(html: string): unknown {
  const found = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html);
  if (found === null) throw new Error("The page has no data");
  return JSON.parse(found[1] as string) as unknown;
}
