/** A service in a process of its own, for as long as a benchmark needs it. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Address, HostInput } from "./latency.bench.ts";

/** Calls `body` with where the service of the shipped model listens, and its process. */
export async function withHost<T>(
  engine: Pick<HostInput, "trainerThreads" | "trainerNiceness">,
  body: (address: Address, host: ChildProcess) => Promise<T>,
): Promise<T> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  const input: HostInput = { dataDir, directory: join(import.meta.dirname, "../../models/whetstone-tiny"), ...engine };
  const host = fork(fileURLToPath(new URL("latency-host.ts", import.meta.url)), [JSON.stringify(input)], {
    execArgv: ["--conditions=whetstone/source", "--import", "tsx"],
  });
  try {
    const result = await body(await nextMessage<Address>(host), host);
    host.send("close");
    await once(host, "exit");
    return result;
  } finally {
    host.kill("SIGKILL");
    await rm(dataDir, { recursive: true, force: true });
  }
}

/** The host's next message; a host that ends instead is an error. */
export async function nextMessage<T>(host: ChildProcess): Promise<T> {
  const done = new AbortController();
  try {
    return await Promise.race([
      once(host, "message", { signal: done.signal }).then(([message]) => message as T),
      once(host, "exit", { signal: done.signal }).then(([code]) => {
        throw new Error(`The service's process ended with code ${String(code)}`);
      }),
    ]);
  } finally {
    done.abort();
  }
}
