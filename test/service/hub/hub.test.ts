import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { startService, type ServiceOptions } from "../../../src/service/index.ts";
import { createHub, type Hub, type HubOptions } from "../../../src/service/hub/hub.ts";
import { commitOf, startHubServer, type HubRepository } from "../../support/hub-server.ts";
import { temporaryDirectory } from "../support.ts";

const TINY = join(import.meta.dirname, "../../../models/whetstone-tiny");
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** The shipped model as somebody would have it on a hub, with files that nobody needs here. */
async function repository(): Promise<HubRepository> {
  const names = await readdir(TINY);
  const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(join(TINY, name))] as const)));
  return {
    files: { ...files, "README.md": "# Tiny", "pytorch_model.bin": "pickles", "onnx/model.onnx": "no" },
    large: ["model.safetensors"],
  };
}

/** A repository of files too small to be a model. */
const small = (files: Record<string, string> = {}): HubRepository => ({
  files: { "config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "weights", ...files },
});

async function open(options: HubOptions): Promise<{ readonly hub: Hub; readonly cacheDir: string }> {
  const cacheDir = options.cacheDir ?? (await temporaryDirectory());
  const hub = createHub({ ...options, cacheDir }, { dataDir: cacheDir, logger: quiet });
  onTestFinished(() => hub.close());
  return { hub, cacheDir };
}

describe("a model hub", () => {
  it("downloads the files of a base model once, in the hub's cache layout", async () => {
    const tiny = small({ "README.md": "x", "pytorch_model.bin": "y", "onnx/model.onnx": "z", "tokenizer_config.json": "{}" });
    const server = await startHubServer({ "team/tiny": tiny });
    const { hub, cacheDir } = await open({ url: server.url });
    const [one, two] = await Promise.all([hub.directoryOf("team/tiny"), hub.directoryOf("team/tiny")]);
    expect(one).toBe(join(cacheDir, "models--team--tiny", "snapshots", commitOf(tiny)));
    expect(two).toBe(one);
    expect((await readdir(one!)).toSorted()).toEqual(["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    expect(await readFile(join(one!, "model.safetensors"), "utf8")).toBe("weights");
    expect(await readFile(join(cacheDir, "models--team--tiny", "refs", "main"), "utf8")).toBe(commitOf(tiny));
    const asked = server.requests.length;
    expect(server.requests.filter((line) => line.includes("/revision/"))).toHaveLength(1);

    // Another process, another branch head: training uses the cached files without a request.
    server.repositories["team/tiny"] = small({ "model.safetensors": "newer" });
    const again = await open({ url: server.url, cacheDir });
    expect(await again.hub.directoryOf("team/tiny")).toBe(one);
    expect([await again.hub.isKept("team/tiny"), await again.hub.isKept("team/tiny@v1"), await again.hub.isKept("/a/path")]).toEqual([
      true,
      false,
      false,
    ]);
    expect(server.requests).toHaveLength(asked);
    expect(await again.hub.directoryOf("team/tiny@v1")).toBe(
      join(cacheDir, "models--team--tiny", "snapshots", commitOf(server.repositories["team/tiny"])),
    );
  });

  it("verifies downloaded files in another process, and names a damaged file without its path", async () => {
    const server = await startHubServer({ "team/tiny": small() });
    const { hub, cacheDir } = await open({ url: server.url });
    const directory = await hub.directoryOf("team/tiny");
    expect(await (await open({ url: server.url, cacheDir })).hub.directoryOf("team/tiny")).toBe(directory);
    await writeFile(join(directory!, "model.safetensors"), "weighty");
    const error = await (await open({ url: server.url, cacheDir })).hub.directoryOf("team/tiny").catch((reason: unknown) => reason);
    expect(error).toMatchObject({
      code: "E_DATA_CORRUPTED",
      message: expect.stringContaining("'team/tiny' (model.safetensors)") as string,
    });
    expect((error as Error).message).not.toContain(cacheDir);
    // Removed, it is fetched again. The other files keep the digests they were fetched with.
    await writeFile(join(directory!, "tokenizer.json"), "[]");
    await rm(join(directory!, "model.safetensors"));
    const { hub: repaired } = await open({ url: server.url, cacheDir });
    expect(await readFile(join((await repaired.directoryOf("team/tiny"))!, "model.safetensors"), "utf8")).toBe("weights");
    await expect((await open({ url: server.url, cacheDir })).hub.directoryOf("team/tiny")).rejects.toThrow("'team/tiny' (tokenizer.json)");
  });

  it("downloads weights in several files, and resumes an interrupted download", async () => {
    const parts = { "model-00001-of-00002.safetensors": "one", "model-00002-of-00002.safetensors": "two" };
    const index = JSON.stringify({ weight_map: { a: "model-00001-of-00002.safetensors", b: "model-00002-of-00002.safetensors" } });
    const { "model.safetensors": _, ...rest } = small().files as Record<string, string>;
    const server = await startHubServer({ "team/parts": { files: { ...rest, ...parts, "model.safetensors.index.json": index } } });
    server.cut.add("model-00002-of-00002.safetensors");
    const { hub, cacheDir } = await open({ url: server.url });
    await expect(hub.directoryOf("team/parts")).rejects.toMatchObject({ message: expect.stringMatching(/bytes|terminated|closed/u) });
    expect(await readdir(join(cacheDir, "models--team--parts"))).toEqual(["snapshots"]);
    // What did not come whole is not there, and not half there.
    const offline = await open({ url: server.url, cacheDir, isOffline: true });
    await expect(offline.hub.directoryOf("team/parts")).rejects.toMatchObject({ code: "E_NOT_FOUND" });
    server.cut.clear();
    const before = server.requests.length;
    const directory = await hub.directoryOf("team/parts");
    expect((await readdir(directory!)).toSorted()).toEqual(
      [...Object.keys(rest), ...Object.keys(parts), "model.safetensors.index.json"].toSorted(),
    );
    expect(server.requests.slice(before).filter((line) => line.includes("00001"))).toEqual([]);
    expect(await offline.hub.directoryOf("team/parts")).toBe(directory);
  });

  it("rejects a model with a missing weight file, also the second time", async () => {
    const index = JSON.stringify({ weight_map: { a: "model-00001-of-00002.safetensors", b: "model-00002-of-00002.safetensors" } });
    const { "model.safetensors": _, ...rest } = small().files as Record<string, string>;
    const half = { ...rest, "model-00001-of-00002.safetensors": "one", "model.safetensors.index.json": index };
    const server = await startHubServer({ "team/half": { files: half } });
    const { hub, cacheDir } = await open({ url: server.url });
    for (let time = 0; time < 2; time++) {
      await expect(hub.directoryOf("team/half")).rejects.toMatchObject({
        code: "E_UNSUPPORTED",
        message: expect.stringContaining("model-00002-of-00002.safetensors"),
      });
    }
    expect(await readdir(join(cacheDir, "models--team--half"))).toEqual(["snapshots"]);
  });

  it("removes old incomplete downloads and keeps recent ones", async () => {
    const tiny = small();
    const server = await startHubServer({ "team/tiny": tiny });
    const { hub, cacheDir } = await open({ url: server.url });
    const snapshots = join(cacheDir, "models--team--tiny", "snapshots");
    const [old, another] = [join(snapshots, commitOf(tiny)), join(snapshots, "0".repeat(40))];
    const left = (directory: string) => join(directory, `model.safetensors.incomplete-${randomUUID()}`);
    const [abandoned, elsewhere, growing] = [left(old), left(another), left(another)];
    for (const path of [abandoned, elsewhere, growing]) {
      await mkdir(join(path, ".."), { recursive: true });
      await writeFile(path, "half");
    }
    const yesterday = new Date(Date.now() - 86_400_000);
    for (const path of [abandoned, elsewhere]) await utimes(path, yesterday, yesterday);
    await hub.directoryOf("team/tiny");
    expect((await readdir(old)).toSorted()).toEqual(["config.json", "model.safetensors", "tokenizer.json"]);
    expect(await readdir(another)).toEqual([basename(growing)]);
  });

  it("reports a cache directory that cannot be written", async () => {
    const server = await startHubServer({ "team/tiny": small() });
    const cacheDir = join(await temporaryDirectory(), "file");
    await writeFile(cacheDir, "no directory");
    const { hub } = await open({ url: server.url, cacheDir });
    const error = (await hub.directoryOf("team/tiny").catch((caught: unknown) => caught)) as Error;
    expect(error).toMatchObject({
      code: "E_NOT_FOUND",
      message: expect.stringMatching(/cannot be kept in the cache of this service: [A-Z]+: /u),
    });
    expect(error.message).not.toContain(cacheDir);
    expect(error.message).not.toContain("is not there");
  });

  it.each([
    ["no such model", "team/nothing", "E_NOT_FOUND", /has no model 'team\/nothing'/u],
    ["no such revision", "team/tiny@v9", "E_NOT_FOUND", /revision 'v9'/u],
    ["a model that asks for consent", "team/gated", "E_NOT_FOUND", /Set HF_TOKEN/u],
    ["other kinds of weights alone", "team/pickles", "E_UNSUPPORTED", /has no model\.safetensors or/u],
    ["other bytes than it says", "team/torn", "E_DATA", /other bytes than the hub says/u],
  ])("reports %s", async (_, name, code, message) => {
    const pickles = { files: { "config.json": "{}", "tokenizer.json": "{}", "pytorch_model.bin": "x" } };
    const server = await startHubServer({
      "team/tiny": small(),
      "team/gated": { ...small(), token: "hf_secret" },
      "team/pickles": pickles,
      "team/torn": { ...small({ "model.safetensors": "right" }), large: ["model.safetensors"] },
    });
    if (name === "team/torn") server.wrong.add("model.safetensors");
    const { hub } = await open({ url: server.url });
    await expect(hub.directoryOf(name)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  });

  it("sends its token, and never shows it in an error", async () => {
    const server = await startHubServer({ "team/gated": { ...small(), token: "hf_secret" } });
    const { hub } = await open({ url: server.url, token: "hf_secret" });
    await expect(hub.directoryOf("team/gated")).resolves.toContain("models--team--gated");
    const other = await open({ url: server.url, token: "hf_other" });
    const error = await other.hub.directoryOf("team/gated").catch((caught: unknown) => caught as Error);
    expect(String((error as Error).message)).toMatch(/may not read it/u);
    expect(String((error as Error).message)).not.toContain("hf_other");
  });

  it("reports an unreachable hub", async () => {
    const { hub } = await open({ url: "http://127.0.0.1:9" });
    const error = await hub.directoryOf("team/tiny").catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      code: "E_NOT_FOUND",
      param: "base_model",
      message: expect.stringMatching(/hub at http:\/\/127\.0\.0\.1:9 is not there/u),
    });
  });

  it("gets no request for a name that is not a path on the hub", async () => {
    const server = await startHubServer({});
    const { hub } = await open({ url: server.url });
    for (const name of ["tiny", "a/b/c", "../x", "a/../b", "/a/b", "a/b@", "a/b@../../x", "a/b c", ".a/b"])
      expect(await hub.directoryOf(name), name).toBeNull();
    expect(server.requests).toEqual([]);
  });

  it("reads the settings of other hub clients from the environment", async () => {
    const server = await startHubServer({ "team/tiny": { ...small(), token: "hf_env" } });
    const home = await temporaryDirectory();
    vi.stubEnv("HF_ENDPOINT", `${server.url}/`);
    vi.stubEnv("HF_TOKEN", "hf_env");
    vi.stubEnv("HF_HOME", home);
    onTestFinished(() => void vi.unstubAllEnvs());
    const hub = createHub({}, { dataDir: "/nowhere", logger: quiet });
    onTestFinished(() => hub.close());
    expect(await hub.directoryOf("team/tiny")).toContain(join(home, "hub", "models--team--tiny"));
    vi.stubEnv("HF_HUB_OFFLINE", "1");
    const offline = createHub({}, { dataDir: "/nowhere", logger: quiet });
    onTestFinished(() => offline.close());
    await expect(offline.directoryOf("team/other")).rejects.toMatchObject({
      message: expect.stringContaining("fetches nothing (offline)"),
    });
  });
});

describe("a service", () => {
  const serve = async (options: ServiceOptions) => {
    const service = await startService({ dataDir: await temporaryDirectory(), logger: quiet, trainerThreads: 1, ...options });
    onTestFinished(() => service.close({ graceMs: 0 }));
    const post = async (path: string, body: object) => {
      const headers = { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" };
      const response = await fetch(service.url + path, { method: "POST", headers, body: JSON.stringify(body) });
      return { status: response.status, body: (await response.json()) as any };
    };
    return { service, post };
  };
  const model = (base_model: string, name = "m") => ({ project: "demo", name, base_model, lora: { rank: 2 } });

  it("creates a model from a path on the hub, samples from it, and again offline", async () => {
    const server = await startHubServer({ "team/tiny": await repository() });
    const dataDir = await temporaryDirectory();
    const first = await serve({ dataDir, hub: { url: server.url } });
    const made = await first.post("/v1/preview/models", model("team/tiny"));
    expect(made).toMatchObject({ status: 200, body: { base_model: "team/tiny" } });
    expect(await readdir(join(dataDir, "hub"))).toEqual(["models--team--tiny"]);
    expect(server.requests.filter((line) => /README|pytorch|onnx/u.test(line))).toEqual([]);
    const chat = (name: string) => ({
      model: name,
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 4,
      temperature: 0,
      logprobs: true,
    });
    const [fetched, shipped] = [
      await first.post("/v1/chat/completions", chat("local/demo/m")),
      await first.post("/v1/chat/completions", chat("whetstone-tiny")),
    ];
    expect(fetched.body.choices[0].logprobs).toEqual(shipped.body.choices[0].logprobs);
    await first.service.close();
    const asked = server.requests.length;
    const second = await serve({ dataDir, hub: { url: server.url, isOffline: true } });
    expect((await second.post("/v1/chat/completions", chat("local/demo/m"))).body.choices[0].logprobs).toEqual(
      shipped.body.choices[0].logprobs,
    );
    expect(await second.post("/v1/preview/models", model("team/other"))).toMatchObject({
      status: 404,
      body: { error: { param: "base_model", message: expect.stringContaining("offline") } },
    });
    expect(server.requests).toHaveLength(asked);
  });

  it("downloads nothing for a chat request, and nothing with the hub disabled", async () => {
    const server = await startHubServer({ "team/tiny": await repository() });
    const open = await serve({ hub: { url: server.url } });
    expect((await open.post("/v1/chat/completions", { model: "team/tiny", messages: [{ role: "user", content: "x" }] })).status).toBe(404);
    const closed = await serve({ hub: null });
    expect(await closed.post("/v1/preview/models", model("team/tiny"))).toMatchObject({
      status: 404,
      body: { error: { param: "base_model" } },
    });
    expect(server.requests).toEqual([]);
  });
});
