/**
 * Longest delays of a second client while another one sends expensive requests: `/health` over a new connection, the time to the first
 * token of a short completion, and the gap between two tokens of a stream. The second client probes every 50 ms in a process of its own.
 *
 *   npm run bench -- delays [--only <part of a name>] [--seconds 10] [--model <directory of a further base model>]
 *
 * A request that takes longer than `--seconds` is cancelled. With `--model` the cases of sampling are repeated on that model.
 */
import { type ChildProcess, fork } from "node:child_process";
import { setMaxListeners } from "node:events";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import { hosted, nextMessage } from "./latency-service.ts";
import { printTable, SHIPPED, whole } from "./support.ts";

/** Longest delays of the second client. */
export interface Delays {
  readonly healthMs: number;
  readonly gapMs: number;
  readonly firstTokenMs: number;
}

/** Requests that another client sends at one time. */
interface Case {
  readonly name: string;
  readonly path: string;
  readonly bodies: readonly object[];
}

/** Context length of the second model. */
const LONG_CONTEXT = 131_072;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { only: { type: "string", default: "" }, seconds: { type: "string", default: "10" }, model: { type: "string" } },
  });
  const seconds = whole("seconds", values.seconds);
  await withLongContext(async (long) => {
    const more = { long, ...(values.model === undefined ? {} : { further: values.model }) };
    await hosted({ directory: SHIPPED, isFresh: false, more, trainerThreads: 1, trainerNiceness: 10 }, async (address) => {
      const prober = fork(fileURLToPath(new URL("delays-prober.ts", import.meta.url)), [JSON.stringify(address)], {
        execArgv: ["--conditions=whetstone/source", "--import", "tsx"],
      });
      try {
        await nextMessage<"ready">(prober);
        const cases = [
          ...casesOf("whetstone-tiny", "long"),
          ...(values.model === undefined ? [] : casesOf("further", "further").slice(0, 3)),
        ];
        await compare(address, prober, { cases: cases.filter(({ name }) => name.includes(values.only)), seconds });
      } finally {
        prober.kill();
      }
    });
  });
}

async function compare(
  address: Address,
  prober: ChildProcess,
  { cases, seconds }: { readonly cases: readonly Case[]; readonly seconds: number },
): Promise<void> {
  const take = () => {
    prober.send("take");
    return nextMessage<Delays>(prober);
  };
  const lines: string[][] = [];
  const idle: Case = { name: "no other client", path: "", bodies: [] };
  for (const each of [idle, ...cases]) {
    await new Promise((resolve) => setTimeout(resolve, 1500));
    await take();
    const startedMs = performance.now();
    const statuses = each.bodies.length === 0 ? await pause(2000) : await send(address, each, seconds);
    const tookMs = performance.now() - startedMs;
    const { healthMs, gapMs, firstTokenMs } = await take();
    lines.push([each.name, statuses, ...[tookMs, healthMs, gapMs, firstTokenMs].map((ms) => ms.toFixed(0))]);
    console.log(lines.at(-1)!.join(" | "));
  }
  console.log("");
  printTable(["other client", "statuses", "took ms", "health ms", "stream gap ms", "first token ms"], lines);
}

async function pause(ms: number): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  return "";
}

/** Sends the bodies of a case over a connection each, and returns the counts of the answers' statuses. */
async function send({ url, apiKey }: Address, { path, bodies }: Case, seconds: number): Promise<string> {
  const agent = new Agent({ connections: null, headersTimeout: 0, bodyTimeout: 0 });
  const signal = AbortSignal.timeout(seconds * 1000);
  setMaxListeners(0, signal);
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const texts = bodies.map((body) => JSON.stringify(body));
  const statuses = await Promise.all(
    texts.map(async (body) => {
      try {
        const answer = await request(url + path, { method: "POST", dispatcher: agent, signal, headers, body });
        for await (const _ of answer.body);
        return String(answer.statusCode);
      } catch (error) {
        return signal.aborted ? "cancelled" : (error as Error).message;
      }
    }),
  );
  await agent.destroy();
  const counts = new Map<string, number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return Array.from(counts, ([status, count]) => `${status} × ${count}`).join(", ");
}

/** Calls `body` with a directory of the shipped model with a long context. */
async function withLongContext(body: (directory: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    await cp(SHIPPED, directory, { recursive: true });
    const config = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
    await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, max_position_embeddings: LONG_CONTEXT }));
    await body(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function casesOf(model: string, longModel: string): Case[] {
  const texts = (count: number, length: number) =>
    Array.from({ length: count }, (_, index) =>
      `${index} the quick brown fox jumps over lazy dogs `.repeat(Math.ceil(length / 40)).slice(0, length),
    );
  const completion = (more: object) => ({ model, max_tokens: 1, ...more });
  const chat = (more: object) => ({ model, messages: [{ role: "user", content: "go on" }], ...more });
  const nested = (depth: number, inside: string, close: string) => `${"(".repeat(depth)}${inside}${close.repeat(depth)}`;
  const longTokens = Array.from({ length: 90_000 }, (_, t) => 10 + ((t * 17) % 480));
  return [
    {
      name: `${model}: 1,024 echoed prompts with log-probabilities`,
      path: "/v1/completions",
      bodies: [completion({ prompt: texts(1024, 900), echo: true, logprobs: 5 })],
    },
    {
      name: `${model}: n = 64 with 20 alternatives`,
      path: "/v1/chat/completions",
      bodies: [chat({ n: 64, max_tokens: 300, logprobs: true, top_logprobs: 20 })],
    },
    {
      name: `${longModel}: long prompt`,
      path: "/v1/completions",
      bodies: [{ ...completion({ prompt: longModel === "long" ? longTokens : texts(1, 20_000)[0]! }), model: longModel }],
    },
    {
      name: "six nested regular expressions and a prompt of 18 KB",
      path: "/v1/chat/completions",
      bodies: Array.from({ length: 6 }, (_, index) =>
        chat({ max_tokens: 1, structured_outputs: { regex: nested(3000 + index, "a", "b)") } }),
      ),
    },
    {
      name: "regular expression of 5,000 levels",
      path: "/v1/chat/completions",
      bodies: [chat({ max_tokens: 1, structured_outputs: { regex: nested(5000, "a", ")") } })],
    },
    {
      name: "truncated prompts of 4 MB",
      path: "/v1/completions",
      bodies: ["x", "x y ", "日本"].map((part) =>
        completion({ prompt: part.repeat(Math.floor(4_000_000 / part.length / (part === "日本" ? 3 : 1))), truncate_prompt_tokens: -1 }),
      ),
    },
    ...[1000, 3000, 5000].map((count) => ({
      name: `${count} connections`,
      path: "/v1/chat/completions",
      bodies: Array.from({ length: count }, (_, index) => chat({ max_tokens: 8, seed: index })),
    })),
  ];
}
