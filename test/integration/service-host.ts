/** A service with the embedded engine in a process of its own, to be killed: `service-host.ts <data directory> [port] [trainer threads] [steps]`. */
import { fileURLToPath } from "node:url";
import { createOnnxEngine, type Engine } from "../../src/engine/index.ts";
import { startService } from "../../src/service/index.ts";

const [dataDir = "", port = "0", threads = "", dieAfter = ""] = process.argv.slice(2);

/** The engine, in a process that kills itself right after so many optimizer steps: no later line of the job's code runs. */
async function mortalEngine(steps: number): Promise<Engine> {
  const shipped = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
  const engine = await createOnnxEngine({ baseModels: { "whetstone-tiny": shipped }, trainerThreads: Number(threads) });
  let left = steps;
  const optimStep: Engine["optimStep"] = async (...given) => {
    const result = await engine.optimStep(...given);
    left--;
    if (left === 0) process.kill(process.pid, "SIGKILL");
    return result;
  };
  return new Proxy(engine, {
    get(target, name) {
      if (name === "optimStep") return optimStep;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

// Commits are frequent, so that a kill lands before, in and after some of them.
const { url, apiKey } = await startService({
  dataDir,
  port: Number(port),
  limits: { commitEverySteps: 4 },
  ...(threads === "" ? {} : { trainerThreads: Number(threads) }),
  ...(dieAfter === "" ? {} : { engine: await mortalEngine(Number(dieAfter)) }),
});
process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);
