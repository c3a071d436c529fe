import { expect, expectTypeOf, onTestFinished, test } from "vitest";
import { ArgumentError, DataError, EngineError, NoSpaceError, WhetstoneError } from "../../src/base/errors.ts";
import { spawnWorker } from "../../src/base/util/spawn-worker.ts";
import { restoreError, WorkerClient, type WorkerClientOptions } from "../../src/base/util/worker-rpc.ts";
import type { FAILURES, RpcEvent, RpcMethods } from "./rpc-worker.ts";

function start(options: Partial<WorkerClientOptions<RpcEvent>> = {}): WorkerClient<RpcMethods, RpcEvent> {
  const client = new WorkerClient<RpcMethods, RpcEvent>(spawnWorker("../test/util/rpc-worker"), { onDeath: () => {}, ...options });
  onTestFinished(() => client.close());
  return client;
}

async function failure(name: keyof typeof FAILURES, client = start()): Promise<WhetstoneError> {
  return client.call("fail", name).then(
    () => expect.fail("Expected an error"),
    (error: WhetstoneError) => error,
  );
}

test("derives inputs and results from the worker's methods", async () => {
  const client = start();
  const sum = await client.call("add", [2, 3]);
  expectTypeOf(sum).toEqualTypeOf<number>();
  expect(sum).toBe(5);
  const doubled = await client.call("double", Float32Array.of(1, 2));
  expectTypeOf(doubled).toEqualTypeOf<Float32Array<ArrayBuffer>>();
  expect(doubled).toEqual(Float32Array.of(2, 4));
  // @ts-expect-error: one number is missing.
  expect(await client.call("add", [2])).toBeNaN();
  // @ts-expect-error: the worker has no such method.
  await expect(client.call("subtract", [2, 3])).rejects.toThrow(EngineError);
});

test("delivers events of the worker", async () => {
  const events: string[] = [];
  const client = start({ onEvent: ({ text }) => events.push(text) });
  await client.call("report", "one");
  await client.call("report", "two");
  expect(events).toEqual(["one", "two"]);
});

test("an error keeps class, code, message, parameter and stack", async () => {
  const error = await failure("argument");
  expect(error).toBeInstanceOf(ArgumentError);
  expect(error).toMatchObject({
    name: "ArgumentError",
    code: "E_ARGUMENT",
    message: "Row 1: expected finite weights",
    param: "rows",
    retryable: false,
    stack: expect.stringContaining("rpc-worker.ts") as string,
  });
  expect(error.cause).toBeUndefined();
});

test("an error keeps its causes, each with its own fields", async () => {
  const error = await failure("chain");
  expect(error).toBeInstanceOf(DataError);
  const cause = error.cause as DataError;
  expect(cause).toBeInstanceOf(DataError);
  expect(cause).toMatchObject({ message: "state.json cannot be read", param: "path" });
  const bug = cause.cause as Error;
  expect(bug).toMatchObject({ name: "TypeError", message: "not a file", stack: expect.stringContaining("rpc-worker.ts") as string });
  expect(bug.cause).toMatchObject({ name: "Error", message: "EACCES: permission denied", code: "EACCES" });
  expect((await failure("cycle")).message).toBe("of itself");
});

test("an error of an unknown class keeps its name and fields, and a registered class is restored", async () => {
  const unknown = await failure("unknownClass");
  expect(unknown).toBeInstanceOf(WhetstoneError);
  expect(unknown).toMatchObject({ name: "LimitError", code: "E_OVERLOADED", message: "Too many", param: "n", retryable: true });
  class FieldError extends ArgumentError {}
  const known = await failure("field", start({ restore: (sent) => restoreError(sent, { FieldError }) }));
  expect(known).toBeInstanceOf(FieldError);
  expect(known).toMatchObject({ name: "FieldError", code: "E_ARGUMENT", param: "seed" });
});

test("any other error becomes the cause of an engine error, or of a disk error", async () => {
  const bug = await failure("bug");
  expect(bug).toBeInstanceOf(EngineError);
  expect(bug).toMatchObject({ message: "x is not a function", retryable: false, cause: { name: "TypeError" } });
  const disk = await failure("disk");
  expect(disk).toBeInstanceOf(NoSpaceError);
  expect(disk.cause).toMatchObject({ code: "ENOSPC" });
  expect(await failure("text")).toMatchObject({ code: "E_ENGINE", message: "a thrown string" });
});
