/**
 * Cost of verifying stored files: SHA-256 of a saved state, compared with the engine's load of it, the second check of an unchanged file,
 * and SQLite's check of the database at a start.
 *
 *   npm run bench -- digests [--sizes 10,100,1000] [--events 100000] [--rounds 5]
 */
import { mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createOnnxEngine } from "../../src/engine/index.ts";
import { openConnection } from "../../src/service/store/connection.ts";
import { openStore } from "../../src/service/store/sqlite.ts";
import { digestDirectory, digestFile } from "../../src/service/disk/digests.ts";
import { Verifier } from "../../src/service/disk/verifier.ts";
import { median, printTable, whole } from "./support.ts";

const SHIPPED = join(import.meta.dirname, "../../models/whetstone-tiny");

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      sizes: { type: "string", default: "10,100,1000" },
      events: { type: "string", default: "100000" },
      rounds: { type: "string", default: "5" },
    },
  });
  const [events, rounds] = [whole("events", values.events), whole("rounds", values.rounds)];
  const sizes = values.sizes.split(",").map((text) => whole("sizes", text));
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    await hashing(directory, sizes, rounds);
    await loading(directory, rounds);
    await checking(directory, events, rounds);
  } finally {
    await rm(directory, { recursive: true });
  }
}

async function timeMs(rounds: number, work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = -1; round < rounds; round++) {
    const startMs = performance.now();
    await work();
    if (round >= 0) times.push(performance.now() - startMs);
  }
  return median(times);
}

async function hashing(directory: string, sizes: readonly number[], rounds: number): Promise<void> {
  const rows: string[][] = [];
  for (const size of sizes) {
    const path = join(directory, `${size}`);
    await writeFile(path, Buffer.alloc(size * 1e6, 7));
    const first = await timeMs(rounds, () => digestFile(path));
    const digest = await digestFile(path);
    const verifier = new Verifier({ error: () => undefined });
    await verifier.check({ root: directory, storedPath: `${size}` }, digest, "file");
    const further = await timeMs(rounds, () => verifier.check({ root: directory, storedPath: `${size}` }, digest, "file"));
    rows.push([String(size), first.toFixed(1), ((size / first) * 1000).toFixed(0), further.toFixed(2)]);
    await rm(path);
  }
  printTable(["file, MB", "first check, ms", "MB/s", "further checks, ms"], rows);
}

async function loading(directory: string, rounds: number): Promise<void> {
  const engine = await createOnnxEngine({ baseModels: { shipped: SHIPPED } });
  const rows: string[][] = [];
  for (const [label, lora] of [
    ["every parameter", undefined],
    ["adapter of rank 16", { rank: 16 }],
  ] as const) {
    const path = join(directory, label);
    const handle = await engine.createModel({ base: "shipped", seed: 1, ...(lora === undefined ? {} : { lora }) });
    const save = await timeMs(rounds, async () => {
      await rm(path, { recursive: true, force: true });
      await mkdir(path);
      await engine.saveState(handle, path);
    });
    const hash = await timeMs(rounds, () => digestDirectory(path, "checkpoints/x/1"));
    const load = await timeMs(rounds, async () => engine.release(await engine.loadPolicy({ base: "shipped", state: path })));
    const bytes = Object.values(await digestDirectory(path, "x")).reduce((sum, digest) => sum + digest.size_bytes, 0);
    rows.push([label, (bytes / 1e6).toFixed(1), save.toFixed(1), hash.toFixed(1), load.toFixed(1)]);
  }
  await engine.close();
  printTable(["saved state of the shipped model", "MB", "save, ms", "digests, ms", "load, ms"], rows);
}

async function checking(directory: string, events: number, rounds: number): Promise<void> {
  const path = join(directory, "whetstone.db");
  await (await openStore(path)).destroy();
  const connection = await openConnection(path, 1000);
  const data = JSON.stringify(Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`metric/${index}`, Math.sqrt(index)])));
  connection.exec("PRAGMA foreign_keys = OFF; BEGIN");
  const insert = connection.prepare("INSERT INTO job_events VALUES (?, 'job', ?, ?, 'gradient_step', ?, '2026-01-01T00:00:00.000Z')");
  for (let index = 0; index < events; index++) insert.run(`event-${index}`, index, `step:${index}`, data);
  connection.exec("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
  connection.close();
  const open = await timeMs(rounds, async () => (await openStore(path)).destroy());
  const megabytes = (await stat(path)).size / 1e6;
  printTable(["database", "MB", "open and check, ms"], [[`${events} events`, megabytes.toFixed(1), open.toFixed(1)]]);
}
