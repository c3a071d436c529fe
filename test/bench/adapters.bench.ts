/**
 * Sampling rows that bring adapters of their own: the same rows over one adapter, several, and the base as it is, on the shipped model.
 *
 *   npm run bench -- adapters [--rows 32] [--adapters 1,4] [--rank 16] [--prompt 32] [--tokens 64] [--rounds 5]
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createOnnxEngine, type Engine, type PolicyVersion } from "../../src/engine/index.ts";
import { median, printTable, short, whole } from "./support.ts";

const SHIPPED = join(import.meta.dirname, "../../models/whetstone-tiny");

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      rows: { type: "string", default: "32" },
      adapters: { type: "string", default: "1,4" },
      rank: { type: "string", default: "16" },
      prompt: { type: "string", default: "32" },
      tokens: { type: "string", default: "64" },
      rounds: { type: "string", default: "5" },
    },
  });
  const [rows, rank, rounds] = [whole("rows", values.rows), whole("rank", values.rank), whole("rounds", values.rounds)];
  const [prompt, tokens] = [whole("prompt", values.prompt), whole("tokens", values.tokens)];
  const counts = values.adapters.split(",").map((text) => whole("adapters", text));
  console.log(
    `${rows} rows, adapters of rank ${rank}, prompts of ${prompt} tokens, ${tokens} new ones, medians of ${rounds} rounds in turn\n`,
  );
  const engine = await createOnnxEngine({ baseModels: { shipped: SHIPPED }, prefixCacheBytes: 0 });
  const sides = [{ label: "base", policies: [await engine.loadPolicy({ base: "shipped" })] }];
  for (const count of counts) sides.push({ label: String(count), policies: await adapters(engine, count, rank) });
  const times = sides.map(() => [] as number[]);
  for (let round = -1; round < rounds; round++) {
    for (const [index, { policies }] of sides.entries()) {
      const startMs = performance.now();
      await Promise.all(
        Array.from({ length: rows }, (_, row) => sample(engine, policies[row % policies.length]!, { row, prompt, tokens })),
      );
      if (round >= 0) times[index]!.push(performance.now() - startMs);
    }
  }
  await engine.close();
  const first = median(times[1]!);
  printTable(
    ["adapters", "ms", "tokens/s", `time ÷ ${counts[0]}`],
    sides.map(({ label }, index) => {
      const ms = median(times[index]!);
      return [label, short(ms), short((rows * tokens * 1000) / ms), (ms / first).toFixed(2)];
    }),
  );
}

async function adapters(engine: Engine, count: number, rank: number): Promise<PolicyVersion[]> {
  const policies: PolicyVersion[] = [];
  for (let seed = 0; seed < count; seed++) {
    const model = await engine.createModel({ base: "shipped", lora: { rank }, seed });
    policies.push(await engine.publish(model));
    await engine.unload(model);
  }
  return policies;
}

async function sample(
  engine: Engine,
  policy: PolicyVersion,
  { row, prompt, tokens }: { readonly row: number; readonly prompt: number; readonly tokens: number },
): Promise<void> {
  const ids = Int32Array.from({ length: prompt }, (_, t) => (row * 31 + t * 17) % 500);
  const params = { maxTokens: tokens, temperature: 1, topP: 1, topK: 0, seed: BigInt(row), stopTokenIds: [], topLogprobs: 0 };
  let count = 0;
  for await (const token of engine.sample(policy, ids, params)) count += Number(Number.isFinite(token.logprob));
  if (count !== tokens) throw new Error(`Expected ${tokens} tokens, got ${count}`);
}
