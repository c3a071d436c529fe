/** HTTPS: the certificate, its renewal, and clients with a certificate authority. */
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { connect as openTls, type PeerCertificate } from "node:tls";
import { Agent, request } from "undici";
import { describe, expect, it } from "vitest";
import { certificate, hasOpenssl } from "../certificate.ts";
import { startTestService, temporaryDirectory } from "../support.ts";

/** Returns the name in the certificate that the service presents to a new connection. */
function presentedName(url: string, options: object = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = openTls({ host: "127.0.0.1", port: Number(new URL(url).port), rejectUnauthorized: false, ...options }, () => {
      const { subject } = socket.getPeerCertificate() as PeerCertificate;
      socket.destroy();
      resolve(String(subject.CN));
    });
    socket.on("error", reject);
  });
}

describe.skipIf(!hasOpenssl)("HTTPS (needs openssl)", () => {
  it("is in the URL and in service.json, and serves clients that know the authority", async () => {
    const directory = await temporaryDirectory();
    const files = certificate(directory, "first");
    const dataDir = join(directory, "data");
    const { service } = await startTestService({ dataDir, tls: files });
    expect(service.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/u);
    expect(JSON.parse(await readFile(join(dataDir, "service.json"), "utf8"))).toMatchObject({ url: service.url });
    const agent = new Agent({ connect: { ca: await readFile(files.cert) } });
    const { statusCode, headers, body } = await request(`${service.url}/health`, { dispatcher: agent });
    expect(statusCode).toBe(200);
    expect(headers["x-request-id"]).toMatch(/^[0-9a-f]{32}$/u);
    await body.dump();
    await agent.destroy();
    await expect(request(`${service.url}/health`)).rejects.toThrow(/self-signed/u);
    await expect(presentedName(service.url, { maxVersion: "TLSv1.1" })).rejects.toThrow();
  });

  it("the library's client accepts the authority of NODE_EXTRA_CA_CERTS", async () => {
    const directory = await temporaryDirectory();
    const files = certificate(directory, "first");
    const { service } = await startTestService({ tls: files });
    const program = join(directory, "client.mts");
    const source = `import { connect } from ${JSON.stringify(join(process.cwd(), "src/index.ts"))};
const service = await connect({ baseUrl: process.argv[2], apiKey: process.argv[3] });
console.log((await service.models.list()).length);
await service.close();
`;
    await writeFile(program, source);
    const { spawn } = await import("node:child_process");
    const child = spawn(process.execPath, ["--conditions=whetstone/source", "--import", "tsx", program, service.url, service.apiKey], {
      env: { ...process.env, NODE_EXTRA_CA_CERTS: files.cert },
    });
    let output = "";
    child.stdout.on("data", (chunk) => (output += String(chunk)));
    child.stderr.on("data", (chunk) => (output += String(chunk)));
    expect(await new Promise((resolve) => child.once("close", resolve)), output).toBe(0);
    expect(output.trim()).toBe("1");
  });

  it("a replaced certificate is presented to new connections; a broken one is not", async () => {
    const directory = await temporaryDirectory();
    const files = certificate(directory, "first");
    const next = certificate(directory, "second");
    const { service, log } = await startTestService({ tls: files });
    expect(await presentedName(service.url)).toBe("first");
    await copyFile(next.cert, files.cert);
    await service.reloadCertificate();
    expect(log.at(-1)).toMatchObject({ level: "warn", message: expect.stringContaining("keeps the one it has") });
    expect(await presentedName(service.url)).toBe("first");
    await copyFile(next.key, files.key);
    // Noticed without a call, too.
    await expect.poll(() => presentedName(service.url)).toBe("second");
  });

  it("a missing, malformed or mismatched file is an error before the start", async () => {
    const directory = await temporaryDirectory();
    const files = certificate(directory, "first");
    const other = certificate(directory, "second");
    for (const tls of [
      { ...files, cert: join(directory, "none") },
      { cert: files.key, key: files.key },
      { ...files, key: other.key },
    ])
      await expect(startTestService({ tls })).rejects.toMatchObject({ code: "E_CONFIG", param: "tls" });
  });
});
