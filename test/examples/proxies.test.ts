/** examples/deploy: nginx and Caddy with the configurations of the folder, in front of a service. Skipped where they are not installed. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { Agent, request } from "undici";
import { describe, expect, it, onTestFinished } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { read } from "../project/files.ts";
import { certificate, hasOpenssl } from "../service/certificate.ts";
import { startTestService, temporaryDirectory } from "../service/support.ts";

const isInstalled = (command: string, argument: string) => spawnSync(command, [argument]).status === 0;

/** Replaces each text, which must be there once. */
function replaced(text: string, changes: Readonly<Record<string, string>>): string {
  return Object.entries(changes).reduce((changed, [from, to]) => {
    expect(changed.split(from), from).toHaveLength(2);
    return changed.replace(from, to);
  }, text);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** Started proxy. */
interface Proxy {
  readonly url: string;
  readonly agent: Agent;
}

/** Starts the proxy `command`, and waits until it answers on `port`. */
async function startProxy(
  port: number,
  cert: string,
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Proxy> {
  const agent = new Agent({ connect: { ca: await readFile(cert) } });
  let output = "";
  const child: ChildProcess = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk) => (output += String(chunk)));
  onTestFinished(async () => {
    await agent.destroy();
    if (child.exitCode !== null) return;
    child.kill();
    await once(child, "exit");
  });
  const url = `https://127.0.0.1:${port}`;
  const answers = async () => {
    if (child.exitCode !== null) throw new Error(`${command} ended: ${output}`);
    const { statusCode, body } = await request(`${url}/health`, { dispatcher: agent }).catch(() => ({ statusCode: 0, body: null }));
    await body?.dump();
    return statusCode;
  };
  await expect.poll(answers).toBe(200);
  return { url, agent };
}

/** Starts nginx with the configuration of the folder. */
async function startNginx(target: string): Promise<Proxy> {
  const [directory, port] = [await temporaryDirectory(), await freePort()];
  const { cert, key } = certificate(directory, "nginx");
  const server = replaced(read("examples/deploy/nginx.conf"), {
    "127.0.0.1:8321": target,
    "listen 443 ssl": `listen 127.0.0.1:${port} ssl`,
    "/etc/nginx/tls/fullchain.pem": cert,
    "/etc/nginx/tls/privkey.pem": key,
  });
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${join(directory, name)};`);
  const config = join(directory, "nginx.conf");
  await writeFile(
    config,
    `daemon off;\npid ${join(directory, "pid")};\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n${paths.join("\n")}\n${server}}\n`,
  );
  return startProxy(port, cert, "nginx", ["-c", config, "-e", "stderr"]);
}

/** Starts Caddy with the configuration of the folder. */
async function startCaddy(target: string): Promise<Proxy> {
  const [directory, port] = [await temporaryDirectory(), await freePort()];
  const { cert, key } = certificate(directory, "caddy");
  const site = replaced(read("examples/deploy/Caddyfile"), {
    "whetstone.example.com {": `https://127.0.0.1:${port} {\n\ttls ${cert} ${key}`,
    "reverse_proxy whetstone:8321": `reverse_proxy ${target}`,
  });
  const config = join(directory, "Caddyfile");
  await writeFile(config, `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${site}`);
  const home = { HOME: directory, XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory };
  return startProxy(port, cert, "caddy", ["run", "--config", config, "--adapter", "caddyfile"], home);
}

describe.each([
  { name: "nginx", start: startNginx, isHere: hasOpenssl && isInstalled("nginx", "-v") },
  { name: "Caddy", start: startCaddy, isHere: hasOpenssl && isInstalled("caddy", "version") },
])("examples/deploy: $name (needs it and openssl)", ({ start, isHere }) => {
  it.skipIf(!isHere)("passes on streams token by token, uploads, sessions and request ids", async () => {
    const gate = deferred<void>();
    let tokens = 0;
    const { service, requests } = await startTestService({
      engine: { before: ({ verb }) => (verb === "sampleToken" && ++tokens === 3 ? gate.promise : undefined) },
    });
    const { url, agent } = await start(new URL(service.url).host);
    const authorization = `Bearer ${service.apiKey}`;
    const send = (method: "GET" | "POST" | "PUT", path: string, body?: object | Buffer) =>
      request(`${url}${path}`, {
        method,
        dispatcher: agent,
        headers: { authorization, ...(body === undefined || Buffer.isBuffer(body) ? {} : { "content-type": "application/json" }) },
        body: body === undefined || Buffer.isBuffer(body) ? (body ?? null) : JSON.stringify(body),
      });

    // The engine waits before the third token: events of the first one arrive before.
    const messages = [{ role: "user", content: "hello" }];
    const stream = await send("POST", "/v1/chat/completions", { messages, max_tokens: 6, stream: true });
    expect(stream.statusCode).toBe(200);
    let events = "";
    for await (const chunk of stream.body) {
      events += String(chunk);
      if (events.includes('"content"')) gate.resolve();
    }
    expect(events).toMatch(/data: \[DONE\]\s*$/u);
    // The service logs the request id that the client receives.
    expect(requests.map(({ id }) => id)).toContain(stream.headers["x-request-id"]);

    const version = (await (await send("POST", "/v1/preview/artifacts", { project: "demo", name: "large" })).body.json()) as { id: string };
    const upload = await send("PUT", `/v1/preview/artifacts/${version.id}/files/rows.jsonl`, Buffer.alloc(8 * 2 ** 20, "x"));
    expect(upload.statusCode).toBe(200);
    await upload.body.dump();

    const session = (await (await send("POST", "/v1/preview/sessions", { model: "tiny" })).body.json()) as Record<string, string>;
    const urls = JSON.stringify(session).match(/https?:\/\/[^"/]+/gu) ?? [];
    expect(urls.length).toBeGreaterThan(0);
    for (const each of urls) expect(each.startsWith("https://127.0.0.1")).toBe(true);
  });
});
