import { join, resolve } from "node:path";
import { homedir } from "node:os";
import { expect, test } from "vitest";
import { formatBaseModel, parseBaseModel, parseBaseSource, toLocalBaseModel, toLocalBaseSource } from "../../src/base/util/base-model.ts";

const ollama = { kind: "ollama", registry: "registry.ollama.ai", namespace: "library", name: "smollm2", tag: "latest" };

test.each([
  ["whetstone-tiny", { kind: "name", name: "whetstone-tiny" }],
  ["./base", { kind: "path", path: "./base" }],
  ["/models/base", { kind: "path", path: "/models/base" }],
  ["~/base", { kind: "path", path: "~/base" }],
  ["model.Q4_1.GGUF", { kind: "path", path: "model.Q4_1.GGUF" }],
  ["owner/model.gguf", { kind: "path", path: "owner/model.gguf" }],
  ["owner/name", { kind: "hub", repository: "owner/name", revision: null }],
  ["hf:owner/name@refs/pr/1", { kind: "hub", repository: "owner/name", revision: "refs/pr/1" }],
  ["ollama:smollm2", ollama],
  ["ollama:library/smollm2:latest", ollama],
  ["ollama:me/own:1b", { ...ollama, namespace: "me", name: "own", tag: "1b" }],
  ["ollama:hf.co/me/own:Q4_K_M", { ...ollama, registry: "hf.co", namespace: "me", name: "own", tag: "Q4_K_M" }],
  ["local/demo/model", { kind: "name", name: "local/demo/model" }],
])("parses %s", (text, spec) => {
  expect(parseBaseModel(text, "base_model")).toEqual(spec);
});

test.each([
  "ollama:",
  "ollama:../../etc/passwd",
  "ollama:a/../b",
  "ollama:.hidden",
  "ollama:a:../b",
  "hf:owner",
  "hf:owner/name@../x",
  "hf:",
])("rejects %s", (text) => {
  expect(() => parseBaseModel(text, "base_model")).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "base_model" }));
});

test("gives equal models equal names", () => {
  const canonical = (text: string) => formatBaseModel(parseBaseModel(text, "base_model"));
  expect(canonical("hf:owner/name")).toBe("owner/name");
  expect(canonical("owner/name@v1")).toBe("owner/name@v1");
  expect(canonical("ollama:library/smollm2:latest")).toBe("ollama:smollm2");
  expect(canonical("ollama:hf.co/me/own:Q4_K_M")).toBe("ollama:hf.co/me/own:Q4_K_M");
});

test("resolves paths in the working directory and in the home directory", async () => {
  expect(parseBaseSource("owner/name", "baseModels")).toEqual({ kind: "path", path: "owner/name" });
  expect(toLocalBaseSource("owner/name", "baseModels")).toBe(resolve("owner/name"));
  expect(toLocalBaseSource("~/base", "baseModels")).toBe(join(homedir(), "base"));
  expect(toLocalBaseSource("hf:owner/name@v1", "baseModels")).toBe("hf:owner/name@v1");
  expect(await toLocalBaseModel("./x.gguf", "baseModel")).toBe(resolve("x.gguf"));
  expect(await toLocalBaseModel("models/whetstone-tiny", "baseModel")).toBe(resolve("models/whetstone-tiny"));
  expect(await toLocalBaseModel("models/none", "baseModel")).toBe("models/none");
});
