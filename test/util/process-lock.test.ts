import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { lockOwner, takeLock as take } from "../../src/base/util/process-lock.ts";
import { temporaryDirectory } from "../service/support.ts";

const owner = (pid: number, host = hostname()) => JSON.stringify({ pid, host });

const takeLock = (path: string) => take(path, { noun: "run directory", param: "runDir" });

describe("the lock of a directory", () => {
  it("is held once and released", async () => {
    const path = join(await temporaryDirectory(), "run.lock");
    const release = await takeLock(path);
    await expect(takeLock(path)).rejects.toMatchObject({ code: "E_CONFLICT", param: "runDir" });
    expect(await lockOwner(path)).toMatchObject({ pid: process.pid, host: hostname() });
    await release();
    expect(await lockOwner(path)).toBeNull();
    await (
      await takeLock(path)
    )();
    await expect(readFile(path)).rejects.toThrow("ENOENT");
  });

  it("is known by every path of its directory", async () => {
    const directory = await temporaryDirectory();
    const [real, link] = [join(directory, "real"), join(directory, "link")];
    await mkdir(real);
    await symlink(real, link);
    const release = await takeLock(join(link, "run.lock"));
    expect(await lockOwner(join(real, "run.lock"))).toMatchObject({ pid: process.pid, host: hostname() });
    await expect(takeLock(join(real, "run.lock"))).rejects.toMatchObject({ code: "E_CONFLICT" });
    await release();
  });

  it("is respected while its process lives, and taken over afterwards", async () => {
    const path = join(await temporaryDirectory(), "run.lock");
    const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    onTestFinished(() => void child.kill("SIGKILL"));
    await once(child, "spawn");
    await writeFile(path, owner(child.pid as number));
    await expect(takeLock(path)).rejects.toThrow(new RegExp(`process ${child.pid}.*delete ${path}`));
    child.kill("SIGKILL");
    await once(child, "exit");
    await (
      await takeLock(path)
    )();
  });

  it("of an earlier process with this pid, or an incomplete one, is taken over", async () => {
    const path = join(await temporaryDirectory(), "run.lock");
    for (const text of [owner(process.pid), "", '{"pid":1']) {
      await writeFile(path, text);
      expect(await lockOwner(path)).toBeNull();
      await (
        await takeLock(path)
      )();
    }
  });

  it("of another machine is respected", async () => {
    const path = join(await temporaryDirectory(), "run.lock");
    await writeFile(path, owner(1, "another-machine"));
    await expect(takeLock(path)).rejects.toThrow(/on another-machine/);
  });

  it("is taken by one of many concurrent callers", async () => {
    const path = join(await temporaryDirectory(), "run.lock");
    await writeFile(path, owner(2 ** 22 + 1));
    const results = await Promise.allSettled(Array.from({ length: 20 }, () => takeLock(path)));
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  it("of a dead process is taken over by one of several processes", async () => {
    const directory = await temporaryDirectory();
    const execArgv = ["--conditions=whetstone/source", "--import", "tsx"];
    const holders = Array.from({ length: 4 }, () => fork(join(import.meta.dirname, "../support/lock-holder.ts"), { execArgv }));
    onTestFinished(() => holders.forEach((holder) => void holder.kill("SIGKILL")));
    await Promise.all(holders.map((holder) => once(holder, "message")));
    const ask = async (holder: ChildProcess, message: { readonly path?: string }) => {
      holder.send(message);
      return ((await once(holder, "message")) as [boolean])[0];
    };
    for (let round = 0; round < 50; round++) {
      const path = join(directory, `${round}.lock`);
      await writeFile(path, owner(2 ** 22 + 1));
      const held = await Promise.all(holders.map((holder) => ask(holder, { path })));
      expect(held.filter(Boolean)).toHaveLength(1);
      await Promise.all(holders.map((holder) => ask(holder, {})));
    }
    expect(await readdir(directory)).toEqual([]);
  });
});
