/** Signals to real processes of `whetstone serve`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ROOT } from "../project/files.ts";

const ENVIRONMENT = { ...process.env, WHETSTONE_API_KEY: "the-key-of-this-test" };

interface Served {
  readonly child: ChildProcess;
  readonly exited: Promise<unknown[]>;
  readonly url: string;
  /** Process id of the service itself, not of a wrapper such as npm. */
  readonly pid: number;
}

/** Starts `command` with `args` and the arguments of `serve`. */
async function serve(command: string, args: readonly string[]): Promise<Served> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-stop-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const child = spawn(command, [...args, "serve", "--port", "0", "--data-dir", dataDir], {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "ignore"],
    env: ENVIRONMENT,
  });
  const exited = once(child, "exit");
  // Leaving a plain loop would close the pipe, and the next line of output would end the service.
  for await (const chunk of child.stdout!.iterator({ destroyOnReturn: false })) if (String(chunk).includes("Listening")) break;
  child.stdout!.resume();
  const { pid, url } = JSON.parse(await readFile(join(dataDir, "service.json"), "utf8")) as { pid: number; url: string };
  onTestFinished(() => {
    if (isAlive(pid)) process.kill(pid, "SIGKILL");
  });
  return { child, exited, url, pid };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const serveDirectly = () => serve(process.execPath, ["dist/cli/main.js"]);

const BODY = JSON.stringify({ project: "demo", name: "data" });

/** Sends the headers of a request, without its body. */
async function begin(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.on("error", () => undefined);
  const lines = ["POST /v1/preview/artifacts HTTP/1.1", "Host: x", `Authorization: Bearer ${ENVIRONMENT.WHETSTONE_API_KEY}`];
  socket.write([...lines, "Content-Type: application/json", `Content-Length: ${BODY.length}`, "", ""].join("\r\n"));
  // Answered after the headers above were read.
  expect((await fetch(`${url}/health`)).status).toBe(200);
  return socket;
}

/** Starts a stream of tokens and waits for its first bytes. Returns a function that reads the others. */
async function startStream(url: string, tokens = 1000): Promise<() => Promise<string>> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${ENVIRONMENT.WHETSTONE_API_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "whetstone-tiny",
      prompt: "a",
      stream: true,
      max_tokens: tokens,
      ignore_eos: true,
      n: tokens > 100 ? 16 : 1,
    }),
  });
  expect(response.status).toBe(200);
  const reader = response.body!.getReader();
  await reader.read();
  return async () => {
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text;
      text += Buffer.from(value).toString();
    }
  };
}

const status = (url: string) => fetch(`${url}/health`).then((response) => response.status);

test("after SIGTERM finishes the running request, rejects new requests, and exits with code 0", async () => {
  const { child, exited, url } = await serveDirectly();
  const socket = await begin(url);
  child.kill("SIGTERM");
  await expect.poll(() => status(url)).toBe(503);
  socket.write(BODY);
  expect(String((await once(socket, "data"))[0])).toMatch(/^HTTP\/1\.1 200 /);
  expect(await exited).toEqual([0, null]);
});

test("a second signal ends the process at once", async () => {
  const { child, exited, url } = await serveDirectly();
  await begin(url);
  child.kill("SIGTERM");
  await expect.poll(() => status(url)).toBe(503);
  child.kill("SIGTERM");
  expect(await exited).toEqual([null, "SIGTERM"]);
});

test("a second signal during a stream ends the process by the signal, without a core dump", async () => {
  const { child, exited, url } = await serveDirectly();
  await startStream(url);
  child.kill("SIGTERM");
  await expect.poll(() => status(url)).toBe(503);
  child.kill("SIGTERM");
  // Teardown of the engine's threads would abort the process: SIGABRT.
  expect(await exited).toEqual([null, "SIGTERM"]);
});

test.skipIf(process.platform === "win32")("after SIGHUP, as of a closed terminal, a running stream is finished", async () => {
  const { child, exited, url } = await serveDirectly();
  const rest = await startStream(url, 40);
  child.kill("SIGHUP");
  expect((await rest()).endsWith("data: [DONE]\n\n")).toBe(true);
  expect(await exited).toEqual([0, null]);
});

test.skipIf(process.platform === "win32")("SIGTERM to `npm run` stops the service too", async () => {
  const { child, exited, pid } = await serve("npm", ["run", "-s", "whetstone", "--"]);
  expect(pid).not.toBe(child.pid);
  child.kill("SIGTERM");
  await exited;
  await expect.poll(() => isAlive(pid)).toBe(false);
});
