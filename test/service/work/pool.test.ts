import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { WhetstoneError } from "../../../src/base/errors.ts";
import { BodyError } from "../../../src/service/chat/request/errors.ts";
import type { StoredArtifact } from "../../../src/service/store/artifacts.ts";
import type { ChatTasks } from "../../../src/service/chat/tasks.ts";
import { createWorkPool } from "../../../src/service/create-work.ts";
import type { DialectTasks } from "../../../src/service/dialects/tasks.ts";
import type { DataTasks } from "../../../src/service/training-data/tasks.ts";
import type { TaskThread, WorkPool } from "../../../src/service/work/pool.ts";
import { ROOT } from "../../project/files.ts";

const TINY = join(ROOT, "models/whetstone-tiny");

/** A validation that backtracks until its limit of one second. */
const SLOW = { schema: '{"type":"string","pattern":"^(a|a)+$"}', text: JSON.stringify(`${"a".repeat(40)}b`) };
const FAST = { schema: '{"type":"integer"}', text: '"text"' };

function start(maxThreads: number): WorkPool {
  const pool = createWorkPool(maxThreads);
  onTestFinished(() => pool.close());
  return pool;
}

test("reuses an idle thread", async () => {
  const pool = start(2);
  const threads = new Set<TaskThread<ChatTasks>>();
  for (let task = 0; task < 3; task++) {
    const violation = await pool.use((thread: TaskThread<ChatTasks>) => {
      threads.add(thread);
      return thread.run("validate", FAST);
    });
    expect(violation).toMatch(/integer/u);
  }
  expect(threads.size).toBe(1);
});

test("an aborted task does not delay the next one: its thread is terminated", async () => {
  const pool = start(1);
  const client = new AbortController();
  let first: TaskThread<ChatTasks> | undefined;
  const aborted = pool.use(async (thread: TaskThread<ChatTasks>) => {
    first = thread;
    await thread.run("validate", FAST);
    setTimeout(() => client.abort(new Error("client left")), 20);
    return thread.run("validate", SLOW, { signal: client.signal });
  });
  await expect(aborted).rejects.toThrow("client left");
  expect(first!.isAlive).toBe(false);
  await pool.use((thread: TaskThread<ChatTasks>) => {
    expect(thread).not.toBe(first);
    return thread.run("validate", FAST);
  });
});

test("a task that exceeds its time limit is rejected and its thread terminated", async () => {
  const pool = start(1);
  const late = pool.use(async (thread: TaskThread<ChatTasks>) => {
    await thread.run("validate", FAST);
    return thread.run("validate", SLOW, { timeoutMs: 50 });
  });
  await expect(late).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining("within 0.05 s") as string });
});

test("a body error keeps its class, which decides the type of the response", async () => {
  const options = { needs: { parsesReasoning: false }, session: null, isForwardable: false };
  const input = { name: "chat", bytes: Buffer.from("{"), options } as const;
  const error = await start(1)
    .use((thread: TaskThread<DialectTasks>) => thread.run("open", input))
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(BodyError);
  expect(error).toMatchObject({ code: "E_ARGUMENT", retryable: false });
});

test("a system error stays one, so that its message is not sent to a client", async () => {
  const file = { path: "train.jsonl", sha256: "0", size: 1 };
  const artifact = { id: "a", state: "committed", files: [file] } as unknown as StoredArtifact;
  const base = { id: "oracle", directory: TINY, vocabularySize: 512, contextLength: 512, parameters: 1 };
  const source = { artifact, base, paths: { "0": "/does/not/exist" }, param: "training_data_url", kind: { name: "preference" as const } };
  const error = await start(1)
    .use((thread: TaskThread<DataTasks>) => thread.run("examples", source))
    .catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ name: "Error", code: "ENOENT", message: expect.stringContaining("/does/not/exist") as string });
  expect(WhetstoneError.isInstance(error)).toBe(false);
});
