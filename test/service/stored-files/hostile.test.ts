import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { openConnection } from "../../../src/service/store/connection.ts";
import { backUp } from "../../../src/service/stored-files/backup.ts";
import { restore } from "../../../src/service/stored-files/restore.ts";
import { verifyDataDirectory } from "../../../src/service/stored-files/verify.ts";
import { uniform } from "../../../src/base/util/rng.ts";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  MODELS,
  RL_JOBS,
  rlBody,
  startRlJob,
  startTestService,
  temporaryDirectory,
  testBase,
  uploadArtifact,
} from "../support.ts";
import { onSqlite } from "../../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

/** Number of mutated backups; `WHETSTONE_MUTATIONS` sets more. */
const MUTATIONS = Number(process.env["WHETSTONE_MUTATIONS"] ?? 9);

/** Text of every file outside of the data directory. */
const SECRET = "bytes that no client may read";
const HUB = "hub/models--owner--name";
const COMMIT = "0".repeat(40);

/** A backup, next to a directory with the files of a checkpoint, of a job and of a base model that belong to someone else. */
async function hostileBackup() {
  const root = await temporaryDirectory();
  const bases = await testBase();
  const victim = join(root, "victim");
  for (const folder of ["", "progress-1", "reverse", "blobs"]) await mkdir(join(victim, folder), { recursive: true });
  for (const name of ["model.safetensors", "optimizer.safetensors", "state.json", "groups.jsonl", "progress-1/model.safetensors", "1.json"])
    await writeFile(join(victim, name), SECRET);
  const dataDir = join(root, "data");
  const service = await startTestService({ dataDir, engine: { bases } });
  const { id: modelId } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, modelId));
  const job = await service.ok("POST", RL_JOBS, { ...rlBody(modelId), experimental_config: { token_report: true } });
  await finishedEvents(service, job.id as string);
  await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  await service.service.close();
  const snapshot = join(dataDir, HUB, "snapshots", COMMIT);
  await mkdir(snapshot, { recursive: true });
  await mkdir(join(dataDir, HUB, "digests"));
  await writeFile(join(snapshot, "config.json"), "{}");
  await writeFile(join(dataDir, HUB, "digests", `${COMMIT}.json`), JSON.stringify({ "config.json": digestOf("{}") }));
  const backup = join(root, "backup");
  await backUp(dataDir, backup);
  return { root, victim, backup, bases, modelId };
}

function digestOf(bytes: string | Uint8Array) {
  return { sha256: createHash("sha256").update(bytes).digest("hex"), size_bytes: bytes.length };
}

type Manifest = { format: number; created_at: string; files: Record<string, { sha256: string; size_bytes: number }> };

async function changeManifest(backup: string, change: (manifest: Manifest) => void): Promise<void> {
  const path = join(backup, "backup.json");
  const manifest = JSON.parse(await readFile(path, "utf8")) as Manifest;
  change(manifest);
  await writeFile(path, JSON.stringify(manifest));
}

/** Changes the rows of a backup, and the digest of its database in the manifest, as an attacker would. */
async function changeRows(backup: string, sql: string, ...values: unknown[]): Promise<void> {
  const path = join(backup, "whetstone.db");
  const connection = await openConnection(path, 1000);
  // An attacker ignores the relations between tables.
  connection.exec("PRAGMA foreign_keys = OFF");
  connection.prepare(sql).run(...values);
  connection.close();
  const bytes = await readFile(path);
  await changeManifest(backup, ({ files }) => (files["whetstone.db"] = digestOf(bytes)));
}

/** Path-like values that lead to the victim, or to the data directory itself. */
function hostilePaths(victim: string): readonly string[] {
  const steps = ["..", "../..", "checkpoints/../..", "./..", "jobs/../../data/..", "..\\.."];
  return [victim, "../victim", ...steps.map((step) => `${step}/victim`), `/${victim}`, ".", "", "checkpoints", "..", "\0", "victim\0/.."];
}

interface Target {
  readonly backup: string;
  readonly victim: string;
  /** Chooses an element of a list. */
  readonly pick: <T>(list: readonly T[]) => T;
}

/** Mutations by name. */
const KINDS: Readonly<Record<string, (target: Target) => Promise<void>>> = {
  async "a path or an id of a row"({ backup, victim, pick }) {
    const [table, column] = pick([
      ["checkpoints", "state_dir"],
      ["checkpoints", "state_dir"],
      ["checkpoints", "model_id"],
      ["checkpoints", "step"],
      ["jobs", "progress_dir"],
      ["jobs", "id"],
      ["models", "id"],
      ["models", "base_model"],
      ["artifact_files", "sha256"],
      ["artifact_files", "path"],
    ] as const);
    const isState = table === "checkpoints";
    // Without digests, no comparison stops the use of a file.
    const set = isState ? ", digests = NULL" : "";
    await changeRows(
      backup,
      `UPDATE ${table} SET ${column} = ?${set} WHERE rowid = (SELECT max(rowid) FROM ${table})`,
      pick(hostilePaths(victim)),
    );
    if (table === "models" && column === "id") await changeRows(backup, "UPDATE checkpoints SET model_id = (SELECT id FROM models)");
  },
  async "an unfinished job with progress elsewhere"({ backup, victim, pick }) {
    const set = "status = 'queued', committed_steps = 1, digests = NULL, progress_dir = ?, id = ?";
    await changeRows(
      backup,
      `UPDATE jobs SET ${set} WHERE rowid = (SELECT max(rowid) FROM jobs)`,
      pick(hostilePaths(victim)),
      pick(["../victim", "job", "../../victim"]),
    );
  },
  async "a file in the digests of a row"({ backup, victim, pick }) {
    const table = pick(["checkpoints", "jobs"]);
    const path = `${pick(hostilePaths(victim))}${pick(["/model.safetensors", "/1.json", ""])}`;
    const digests = pick([JSON.stringify({ [path]: digestOf(SECRET) }), "{", "[]", '{"__proto__": 1}', `{"${COMMIT}": null}`]);
    await changeRows(backup, `UPDATE ${table} SET digests = ? WHERE rowid = (SELECT max(rowid) FROM ${table})`, digests);
  },
  "a path of the manifest": ({ backup, victim, pick }) =>
    changeManifest(backup, ({ files }) => {
      const from = pick(Object.keys(files));
      const to = `${pick(hostilePaths(victim))}${pick(["", "/model.safetensors", "/new"])}`;
      files[to] = pick([files[from]!, digestOf(SECRET)]);
      if (pick([true, false])) delete files[from];
    }),
  "a dropped file of the manifest": ({ backup, pick }) =>
    changeManifest(backup, ({ files }) => {
      delete files[pick(Object.keys(files))];
    }),
  async "a link in place of a file"({ backup, victim, pick }) {
    const { files } = JSON.parse(await readFile(join(backup, "backup.json"), "utf8")) as Manifest;
    const path = pick(Object.keys(files));
    await rm(join(backup, path));
    await symlink(join(victim, "model.safetensors"), join(backup, path));
    await changeManifest(backup, (manifest) => (manifest.files[path] = digestOf(SECRET)));
  },
  async "a link in place of a folder"({ backup, victim, pick }) {
    const { files } = JSON.parse(await readFile(join(backup, "backup.json"), "utf8")) as Manifest;
    const folder = dirname(pick(Object.keys(files).filter((path) => path.includes("/"))));
    const path = join(backup, pick([folder, folder.split("/")[0]!]));
    await rm(path, { recursive: true });
    await symlink(victim, path);
  },
  async "a FIFO in place of a file"({ backup, pick }) {
    const { files } = JSON.parse(await readFile(join(backup, "backup.json"), "utf8")) as Manifest;
    const path = join(backup, pick(Object.keys(files).filter((name) => name !== "whetstone.db")));
    await rm(path);
    execFileSync("mkfifo", [path]);
  },
  async "a path in the digests of a base model"({ backup, victim, pick }) {
    const name = `${HUB}/digests/${COMMIT}.json`;
    const text = pick([JSON.stringify({ [`${pick(hostilePaths(victim))}/model.safetensors`]: digestOf(SECRET) }), "[", "null"]);
    await writeFile(join(backup, name), text);
    await changeManifest(backup, ({ files }) => (files[name] = digestOf(text)));
  },
};

/** Reads a directory: contents by path. Links are not followed. */
async function contentsOf(root: string): Promise<Record<string, string>> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const texts = entries.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    return [path, entry.isFile() ? await readFile(path, "latin1") : entry.isDirectory() ? "directory" : "other"] as const;
  });
  return Object.fromEntries(await Promise.all(texts));
}

/** Uses and deletes everything that a service serves. Returns the text of all answers. */
async function useEverything(dataDir: string, bases: Awaited<ReturnType<typeof testBase>>): Promise<string> {
  const service = await startTestService({ dataDir, engine: { bases } });
  const texts: string[] = [];
  const call = async (method: string, path: string, body?: unknown): Promise<any> => {
    const answer = await service.call(method, path, body, { signal: AbortSignal.timeout(60_000) });
    texts.push(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body));
    return answer.body;
  };
  const idsIn = (list: any): string[] => (list.data ?? []).map(({ id }: { id: string }) => encodeURIComponent(id));
  for (const id of idsIn(await call("GET", RL_JOBS))) {
    await call("GET", `${RL_JOBS}/${id}/tokens`);
    await call("DELETE", `${RL_JOBS}/${id}/tokens`);
    await call("POST", `${RL_JOBS}/${id}/cancel`);
    await call("DELETE", `${RL_JOBS}/${id}`);
  }
  for (const id of idsIn(await call("GET", ARTIFACTS))) {
    await call("GET", `${ARTIFACTS}/${id}/files/train.jsonl`);
    await call("DELETE", `${ARTIFACTS}/${id}`);
  }
  for (const id of idsIn(await call("GET", MODELS))) {
    const { data = [] } = await call("GET", `${MODELS}/${id}/checkpoints`);
    for (const { step } of data as { step: number }[]) {
      await call("GET", `${MODELS}/${id}/checkpoints/${step}/archive`);
      await call("POST", "/v1/chat/completions", {
        model: `local/demo/reverse:step${step}`,
        messages: [{ role: "user", content: "a" }],
        max_tokens: 1,
      });
      await call("POST", MODELS, { project: "demo", name: `fork-${step}`, base_model: "tiny", from: `local/demo/reverse:step${step}` });
      await call("POST", `${MODELS}/${id}/checkpoints/${step}/pin`);
      await call("DELETE", `${MODELS}/${id}/checkpoints/${step}/pin`);
    }
    await call("POST", RL_JOBS, rlBody(decodeURIComponent(id)));
    await call("DELETE", `${MODELS}/${id}/checkpoints`, { steps: (data as { step: number }[]).map(({ step }) => step) });
    await call("DELETE", `${MODELS}/${id}`);
  }
  await service.service.close({ graceMs: 0 });
  return texts.join("\n");
}

test(
  "mutated backups, manifests and rows: nothing outside of the data directory is read, written or removed",
  async () => {
    const { root, victim, backup, bases } = await hostileBackup();
    await rm(join(root, "data"), { recursive: true });
    const names = Object.keys(KINDS);
    const before = { ...(await contentsOf(victim)), ...(await contentsOf(backup)) };
    const top = (await readdir(root)).toSorted();
    const outcomes = new Map<string, number>();
    for (let index = 0; index < MUTATIONS; index++) {
      const [mutated, restored] = [join(root, "mutated"), join(root, "restored")];
      let count = 0;
      const pick = <T>(list: readonly T[]): T => list[Math.floor(uniform(7n, index, count++) * list.length)] as T;
      const kind = index < names.length ? names[index]! : pick(names);
      const label = `mutation ${index}: ${kind}`;
      await cp(backup, mutated, { recursive: true, verbatimSymlinks: true });
      await KINDS[kind]!({ backup: mutated, victim, pick });
      // An error that is not one of the service would end a command with a trace.
      const known = expect.objectContaining({ code: expect.stringMatching(/^E_(?:CONFIG|DATA_CORRUPTED)$/u) });
      const outcome = await restore(mutated, restored).then(
        () => "restored",
        (error: unknown) => (expect(error, label).toEqual(known), "refused"),
      );
      await verifyDataDirectory(mutated).catch((error: unknown) => expect(error, label).toEqual(known));
      // The mutated backup, as a data directory that was not restored by the command.
      for (const dataDir of outcome === "restored" ? [restored, mutated] : [mutated]) {
        const text = await useEverything(dataDir, bases).catch((error: unknown) => (expect(error, label).toEqual(known), ""));
        expect(text, label).not.toContain(SECRET);
        expect(Object.values(await contentsOf(dataDir)), label).not.toContain(SECRET);
      }
      await rm(mutated, { recursive: true });
      await rm(restored, { recursive: true, force: true });
      expect({ ...(await contentsOf(victim)), ...(await contentsOf(backup)) }, label).toEqual(before);
      expect((await readdir(root)).toSorted(), label).toEqual(top);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
    expect(outcomes.get("refused")).toBeGreaterThan(MUTATIONS / 2);
  },
  MUTATIONS * 20_000 + 60_000,
);
