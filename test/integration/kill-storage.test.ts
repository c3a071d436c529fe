/** Services with an S3 storage that are killed, and continue on another machine: with the database and an empty data directory. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { verifyDataDirectory } from "../../src/service/stored-files/verify.ts";
import { builtProgram } from "../support/built-program.ts";
import { startS3, whyNoS3 } from "../support/s3-server.ts";
import { startTestService, testBase } from "../service/support.ts";
import {
  BASE,
  finishedEvents,
  MODELS,
  RL_JOBS,
  send,
  SFT_JOBS,
  startProcess,
  temporaryDirectory,
  uploadExamples,
  type Address,
} from "./support.ts";

const KILLS = Number(process.env["WHETSTONE_KILLS"] ?? 2);
const [STEPS, BATCH] = [12, 8];

async function databaseOnly(from: string): Promise<string> {
  const to = await temporaryDirectory();
  for (const name of await readdir(from)) if (name.startsWith("whetstone.db")) await cp(join(from, name), join(to, name));
  return to;
}

async function begin(service: Address): Promise<{ readonly modelId: string; readonly jobId: string }> {
  const { id: modelId } = await send(service, "POST", MODELS, { project: "demo", name: "killed", base_model: BASE });
  const job = await send(service, "POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: await uploadExamples(service, STEPS * BATCH),
    config: { batch_size: BATCH, learning_rate: 1e-3 },
    experimental_config: { shuffle_seed: 3 },
  });
  return { modelId, jobId: job.id };
}

describe.skipIf(whyNoS3 !== null)(`a killed service with an S3 storage${whyNoS3 === null ? "" : ` (${whyNoS3})`}`, () => {
  test(
    "resumes its job from the last committed step on another machine, with the weights of an uninterrupted service",
    {
      timeout: 300_000,
    },
    async () => {
      const weights = (dataDir: string, modelId: string) => readFile(join(dataDir, "checkpoints", modelId, "1", "model.safetensors"));
      const calmDir = await temporaryDirectory();
      const calm = await startProcess(calmDir);
      const expected = await begin(calm);
      await finishedEvents(calm, expected.jobId);
      await calm.kill();

      vi.stubEnv("WHETSTONE_STORAGE", (await startS3()).newUrl());
      onTestFinished(() => void vi.unstubAllEnvs());
      let dataDir = await temporaryDirectory();
      // Progress is committed every fourth step: the kills are after the steps 7 and 9.
      let service = await startProcess(dataDir, { haltAt: 7 });
      const { modelId, jobId } = await begin(service);
      for (const next of [{ haltAt: 5 }, {}]) {
        await service.halted();
        await service.kill();
        dataDir = await databaseOnly(dataDir);
        service = await startProcess(dataDir, next);
      }
      expect((await finishedEvents(service, jobId)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
      const [killed, undisturbed] = await Promise.all([weights(dataDir, modelId), weights(calmDir, expected.modelId)]);
      expect(killed.equals(undisturbed)).toBe(true);
      await service.kill();
    },
  );

  test("loses nothing that it acknowledged while it trains, uploads and deletes", { timeout: 300_000 }, async () => {
    const [s3, bases] = [await startS3(), await testBase()];
    const script = await builtProgram(new URL("../service/stored-files/loaded-service.ts", import.meta.url));
    for (let kill = 0; kill < KILLS; kill++) {
      const dataDir = await temporaryDirectory();
      const child = spawn(process.execPath, [script, dataDir, JSON.stringify(bases)], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { ...process.env, ...s3.environment, WHETSTONE_STORAGE: s3.newUrl() },
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      const exited = once(child, "exit");
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      await lines.next();
      for (let step = 0; step < 5; step++) expect((await lines.next()).value).toBe("step");
      await delay(kill * 17);
      child.kill("SIGKILL");
      await exited;
      const elsewhere = await databaseOnly(dataDir);
      expect(await verifyDataDirectory(elsewhere)).toMatchObject({ missing: [], damaged: [], unknown: [] });
      const service = await startTestService({ dataDir: elsewhere, engine: { bases } });
      for (const { id } of (await service.ok("GET", RL_JOBS)).data) {
        await expect.poll(async () => (await service.ok("GET", `${RL_JOBS}/${id}`)).status).toBe("succeeded");
      }
      let checkpoints = 0;
      for (const model of (await service.ok("GET", MODELS)).data) {
        for (const { step } of (await service.ok("GET", `${MODELS}/${model.id}/checkpoints`)).data) {
          const answer = await service.call("GET", `${MODELS}/${model.id}/checkpoints/${step}/archive`);
          expect(answer.status).toBe(200);
          checkpoints++;
        }
      }
      expect(checkpoints).toBeGreaterThan(3);
    }
  });
});
