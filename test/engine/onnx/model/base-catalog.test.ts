import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { BaseCatalog } from "../../../../src/engine/onnx/model/base-catalog.ts";

const DIGEST = "a".repeat(64);
const MODEL = { mediaType: "application/vnd.ollama.image.model", digest: `sha256:${DIGEST}` };

/** Creates a store with a model `own` of the namespace `me`. */
async function store(layers: readonly object[]): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "whetstone-ollama-"));
  onTestFinished(() => rm(root, { recursive: true }));
  vi.stubEnv("OLLAMA_MODELS", root);
  onTestFinished(() => void vi.unstubAllEnvs());
  const manifest = join(root, "manifests/registry.ollama.ai/me/own/1b");
  await mkdir(dirname(manifest), { recursive: true });
  await mkdir(join(root, "blobs"));
  await writeFile(manifest, JSON.stringify({ schemaVersion: 2, layers }));
  await writeFile(join(root, "blobs", `sha256-${DIGEST}`), "GGUF");
  return root;
}

test("finds the file of a model in Ollama's store, where paths are allowed", async () => {
  const root = await store([{ mediaType: "application/vnd.ollama.image.template", digest: "sha256:1" }, MODEL]);
  const file = join(root, "blobs", `sha256-${DIGEST}`);
  const any = new BaseCatalog({ baseModels: {}, allowedRoots: "any" });
  expect(await any.resolve("ollama:me/own:1b")).toEqual({ id: "ollama:me/own:1b", directory: file });
  const none = new BaseCatalog({ baseModels: { own: "ollama:me/own:1b" } });
  expect((await none.resolve("own")).directory).toBe(file);
  await expect(none.resolve("ollama:me/own:1b")).rejects.toMatchObject({ code: "E_NOT_FOUND" });
  await expect(any.resolve("ollama:me/own")).rejects.toMatchObject({
    code: "E_NOT_FOUND",
    message: expect.stringContaining("ollama pull me/own"),
  });
});

test.each([
  [[], /got 0 files/],
  [[MODEL, MODEL], /got 2 files/],
  [[{ ...MODEL, digest: "sha256:../../etc/passwd" }], /64 hexadecimal digits/],
  [[MODEL, { mediaType: "application/vnd.ollama.image.adapter", digest: "x" }], /has an adapter/],
])("rejects a manifest with the layers %j", async (layers, message) => {
  await store(layers);
  const catalog = new BaseCatalog({ baseModels: {}, allowedRoots: "any" });
  await expect(catalog.resolve("ollama:me/own:1b")).rejects.toThrow(message);
});

test("adds a base model under an identifier, and not two under the same", async () => {
  const catalog = new BaseCatalog({ baseModels: {}, allowedRoots: "any" });
  const path = join(process.cwd(), "models/whetstone-tiny");
  await catalog.add("mine", path);
  await catalog.add("mine", path);
  await expect(catalog.add("mine", "hf:owner/name")).rejects.toMatchObject({ code: "E_CONFLICT", param: "id" });
  expect(catalog.ids).toEqual(["mine"]);
  const closed = new BaseCatalog({ baseModels: {} });
  await expect(closed.add("mine", path)).rejects.toMatchObject({ code: "E_NOT_FOUND" });
});
