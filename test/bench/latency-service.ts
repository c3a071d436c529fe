/** A service in a process of its own, for as long as a benchmark needs it. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Address, HostInput } from "./latency.bench.ts";
import { SHIPPED, withShape } from "./support.ts";

/** Calls `body` with where the service of the shipped model, or of one of the given shape, listens, and its process. */
export async function withHost<T>(
  engine: Pick<HostInput, "trainerThreads" | "trainerNiceness">,
  body: (address: Address, host: ChildProcess) => Promise<T>,
  shape = "tiny",
): Promise<T> {
  return shape === "tiny"
    ? hosted({ directory: SHIPPED, isFresh: false, ...engine }, body)
    : withShape(shape, async (directory) => {
        // Any weights do, but text needs the tokenizer, and one id for each of its own.
        const { vocab_size } = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as { vocab_size: number };
        const config = JSON.parse(await readFile(join(directory, "config.json"), "utf8")) as object;
        await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, vocab_size }));
        for (const name of ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
          await copyFile(join(SHIPPED, name), join(directory, name));
        return hosted({ directory, isFresh: true, ...engine }, body);
      });
}

/**
 * Calls `body` with where the service of the given models listens, and its process.
 *
 * @param program - JavaScript of `latency-host.ts`. @default its source, through tsx
 */
export async function hosted<T>(
  model: Omit<HostInput, "dataDir">,
  body: (address: Address, host: ChildProcess) => Promise<T>,
  program?: string,
): Promise<T> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  const input: HostInput = { dataDir, ...model };
  const host = fork(program ?? fileURLToPath(new URL("latency-host.ts", import.meta.url)), [JSON.stringify(input)], {
    execArgv: program === undefined ? ["--conditions=whetstone/source", "--import", "tsx"] : [],
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
