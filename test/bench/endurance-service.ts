/** Takes RL steps in one service and watches the process: `endurance-service.ts <EnduranceInput as JSON>`. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createOnnxEngine } from "../../src/engine/index.ts";
import { startService } from "../../src/service/index.ts";
import type { EnduranceInput, EnduranceResult } from "./endurance.bench.ts";
import { JobFeeder } from "./latency-jobs.ts";

const { steps } = JSON.parse(process.argv[2]!) as EnduranceInput;
const dataDir = await mkdtemp(join(tmpdir(), "whetstone-endurance-"));
const engine = await createOnnxEngine({ baseModels: { "whetstone-tiny": join(import.meta.dirname, "../../models/whetstone-tiny") } });
const service = await startService({ dataDir, engine });
const result: { rssMb: number[]; ms: number[]; referenceMs: number[] } = { rssMb: [], ms: [], referenceMs: [] };
try {
  const jobs = await JobFeeder.create({ url: service.url, apiKey: service.apiKey! });
  for (let step = 0; step < steps; step++) {
    result.referenceMs.push(reference());
    const startMs = performance.now();
    await jobs.runStep(step);
    result.ms.push(performance.now() - startMs);
    result.rssMb.push(process.memoryUsage().rss / 1e6);
  }
} finally {
  await service.close({ graceMs: 0 });
  await engine.close();
  await rm(dataDir, { recursive: true, force: true });
}
console.log(JSON.stringify(result satisfies EnduranceResult));

/** Measures a fixed computation, which shows the present speed of the machine, in ms. */
function reference(): number {
  const startMs = performance.now();
  let sum = 0;
  for (let i = 1; i < 5e6; i++) sum += Math.sqrt(i) / i;
  if (!(sum > 0)) throw new Error("unreachable");
  return performance.now() - startMs;
}
