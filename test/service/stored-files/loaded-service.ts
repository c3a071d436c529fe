/** A service in a process of its own that trains, deletes checkpoints and uploads artifacts without a pause, until it is ended. */
import { setTimeout as delay } from "node:timers/promises";
import { startService } from "whetstone/service";
import { createScriptedEngine, type ScriptedEngineOptions } from "whetstone/testing";
import { rlBody } from "../support.ts";

const [dataDir = "", bases = "[]"] = process.argv.slice(2);
const engine = createScriptedEngine({ bases: JSON.parse(bases) as NonNullable<ScriptedEngineOptions["bases"]> });
const { url, apiKey } = await startService({ dataDir, engine });

async function call(method: string, path: string, body?: unknown): Promise<any> {
  const isText = typeof body === "string";
  const response = await fetch(`${url}/v1/preview${path}`, {
    method,
    headers: { authorization: `Bearer ${apiKey}`, ...(body === undefined || isText ? {} : { "content-type": "application/json" }) },
    ...(body === undefined ? {} : { body: isText ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

/** Trains one model; of its checkpoints, only the last three are kept. */
async function train(name: string): Promise<never> {
  const { id } = await call("POST", "/models", { project: "load", name, base_model: "tiny" });
  for (let step = 1; ; step++) {
    const job = await call("POST", "/training-jobs", { ...rlBody(id), experimental_config: { token_report: step % 2 === 0 } });
    let status = "queued";
    while (status === "queued" || status === "running") {
      await delay(5);
      ({ status } = await call("GET", `/training-jobs/${job.id}`));
    }
    if (status !== "succeeded") throw new Error(`Job ${job.id}: ${status}`);
    if (step > 3) await call("DELETE", `/models/${id}/checkpoints`, { steps: [step - 3] });
    process.stdout.write("step\n");
  }
}

/** Replaces the only file of an artifact, which deletes its old contents, and creates and deletes models. */
async function churn(): Promise<never> {
  const version = await call("POST", "/artifacts", { project: "load", name: "data" });
  for (let turn = 0; ; turn++) {
    await call("PUT", `/artifacts/${version.id}/files/train.jsonl`, `contents ${turn} `.repeat(1000));
    const { id } = await call("POST", "/models", { project: "load", name: `fork-${turn}`, base_model: "tiny", from: "local/load/a" }).catch(
      () => ({ id: null }),
    );
    if (id !== null) await call("DELETE", `/models/${id}`);
  }
}

process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);
await Promise.all([train("a"), train("b"), churn()]);
