/**
 * A training run on the embedded engine in one process with its service: `dashboard-train.ts <DashboardTraining as JSON>`. Prints the address
 * as one line of JSON, waits for a line on standard input, then trains and prints the result.
 */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, defineEnvironment, similarity, trainRl, trajectory } from "../../src/index.ts";
import { startService } from "../../src/service/index.ts";
import type { DashboardTraining, DashboardTrainingResult } from "./dashboard.bench.ts";

const { steps } = JSON.parse(process.argv[2]!) as DashboardTraining;
const root = await mkdtemp(join(tmpdir(), "whetstone-dashboard-bench-"));
const service = await startService({ dataDir: join(root, "data"), runs: [join(root, "runs")] });
const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
try {
  const word = (index: number) => (0x10000 + ((index * 7919) % 0xffff)).toString(36);
  const environment = defineEnvironment({
    name: "reverse",
    scenarios: { train: (index: number) => ({ id: word(index) }), eval: [] },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${scenario.id}` }] });
      await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
      return t;
    },
    rewards: [{ name: "similar", score: ({ scenario, text }) => similarity(text.trim(), [...scenario.id].reverse().join("")) }],
  });
  const model = await client.models.create({ project: "demo", name: "bench", baseModel: "whetstone-tiny", returnExisting: true });
  const start = (runDir: string, count: number) =>
    trainRl({ model, environment, steps: count, groupSize: 8, train: { learningRate: 1e-4 }, runDir, report: false }).done;
  // Loads the model and chooses the number of threads.
  await start(join(root, "warm-up"), 5);
  console.log(JSON.stringify({ url: service.url, apiKey: service.apiKey }));
  await once(process.stdin, "data");
  const [startMs, cpu] = [performance.now(), process.cpuUsage()];
  await start(join(root, "runs", "measured"), steps);
  const { user, system } = process.cpuUsage(cpu);
  const result: DashboardTrainingResult = { seconds: (performance.now() - startMs) / 1000, cpuSeconds: (user + system) / 1e6 };
  console.log(JSON.stringify(result));
} finally {
  process.stdin.destroy();
  await client.close();
  await service.close({ graceMs: 0 });
  await rm(root, { recursive: true, force: true });
}
