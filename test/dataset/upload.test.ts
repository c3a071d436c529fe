import { createHash } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import { Dataset, uploadDataset, type ArtifactUploader, type StoredVersion } from "../../src/library/dataset/index.ts";
import { connect } from "../../src/index.ts";
import { startTestService } from "../service/support.ts";
import { sampled } from "../trajectory/samples.ts";

const example = {
  messages: [
    { role: "user", content: "hi" },
    { role: "assistant", content: "ho" },
  ],
};
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Returns a store that gives the same version for the same key, and fails or corrupts data on request. */
function store(options: { failOn?: string | undefined; corrupt?: boolean } = {}) {
  const versions = new Map<
    string,
    { id: string; name: string; state: StoredVersion["state"]; files: Map<string, string>; metadata: unknown }
  >();
  const keys = new Map<string, string>();
  const calls: string[] = [];
  const version = (id: string) => versions.get(id)!;
  const url = (id: string) => `artifact:///team/${version(id).name}:${id}`;
  const uploader: ArtifactUploader = {
    artifacts: {
      create: async ({ project, name, metadata, idempotencyKey }) => {
        const known = keys.get(idempotencyKey ?? "");
        if (known !== undefined) return { id: known };
        const id = `v${versions.size}`;
        versions.set(id, { id, name: `${project}/${name}`, state: "open", files: new Map(), metadata });
        keys.set(idempotencyKey ?? id, id);
        calls.push(`create ${project}/${name}`);
        return { id };
      },
      putFile: async (id, path, body) => {
        calls.push(`put ${path}`);
        if (options.failOn === path) throw new Error("disk full");
        // Twice, as a retry would: the second must be whole, too.
        for (let attempt = 0; attempt < 2; attempt++) {
          const chunks: Uint8Array[] = [];
          if (typeof body === "function") for await (const chunk of body()) chunks.push(chunk);
          version(id).files.set(path, typeof body === "string" ? body : Buffer.concat(chunks).toString());
        }
      },
      get: async (id) => ({
        state: version(id).state,
        url: url(id),
        files: [...version(id).files].map(([path, text]) => ({ path, sha256: sha256(options.corrupt ? `${text}!` : text) })),
      }),
      commit: async (id) => {
        calls.push("commit");
        version(id).state = "committed";
        return { url: url(id) };
      },
    },
  };
  return { uploader, version, calls, options };
}

describe("uploadDataset", () => {
  it("uploads both files, then commits", async () => {
    const { uploader, version, calls } = store();
    const train = (async function* () {
      yield sampled(1);
      yield example;
    })();
    await expect(uploadDataset(uploader, { project: "p", name: "data", train })).resolves.toEqual({
      url: "artifact:///team/p/data:v0",
      validationUrl: null,
    });
    expect(calls).toEqual(["create p/data", "put trajectories.jsonl", "put metadata.json", "commit"]);
    const data = version("v0").files.get("trajectories.jsonl") ?? "";
    const metadata: unknown = JSON.parse(version("v0").files.get("metadata.json") ?? "");
    expect(metadata).toEqual({
      format: "jsonl",
      num_trajectories: 2,
      sha256: sha256(data),
      schema_version: 1,
      file: "trajectories.jsonl",
      size_bytes: Buffer.byteLength(data),
    });
    expect(version("v0").metadata).toEqual(metadata);
    const lines = data
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { messages_and_choices: unknown[] });
    expect(lines.map((line) => line.messages_and_choices.length)).toEqual([2, 2]);
  });

  it("uploads validation data as a separate artifact, named in the metadata of the training data", async () => {
    const { uploader, version } = store();
    const { train, validation } = Dataset.from(Array.from({ length: 40 }, (_, index) => sampled(index))).split({
      validation: 0.3,
      seed: 7,
    });
    await expect(uploadDataset(uploader, { name: "data", train, validation })).resolves.toEqual({
      url: "artifact:///team/datasets/data:v1",
      validationUrl: "artifact:///team/datasets/data-validation:v0",
    });
    expect(version("v0")).toMatchObject({ name: "datasets/data-validation", state: "committed" });
    expect(version("v1").metadata).toMatchObject({ validation_url: "artifact:///team/datasets/data-validation:v0" });
    const counts = ["v0", "v1"].map((id) => (version(id).metadata as { num_trajectories: number }).num_trajectories);
    expect(counts[0]! + counts[1]!).toBe(40);
    expect(counts[0]).toBeGreaterThan(0);
  });

  it("resumes in the same version and sends only missing files", async () => {
    const { uploader, calls, options } = store({ failOn: "metadata.json" });
    const upload = () => uploadDataset(uploader, { name: "data", train: [sampled(1)] });
    await expect(upload()).rejects.toThrow("disk full");
    options.failOn = undefined;
    await expect(upload()).resolves.toEqual({ url: "artifact:///team/datasets/data:v0", validationUrl: null });
    expect(calls).toEqual(["create datasets/data", "put trajectories.jsonl", "put metadata.json", "put metadata.json", "commit"]);
    // And once more: all is there.
    await expect(upload()).resolves.toEqual({ url: "artifact:///team/datasets/data:v0", validationUrl: null });
    expect(calls).toHaveLength(5);
    await expect(uploadDataset(uploader, { name: "data", train: [sampled(2)] })).resolves.toEqual({
      url: "artifact:///team/datasets/data:v1",
      validationUrl: null,
    });
  });

  it("does not commit if the stored digests differ", async () => {
    const { uploader, calls } = store({ corrupt: true });
    const uploading = uploadDataset(uploader, { name: "data", train: [sampled(1)] });
    await expect(uploading).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("trajectories.jsonl") as string });
    expect(calls).not.toContain("commit");
  });

  it.each([
    ["no training data", { train: [] }, "train"],
    ["no validation data", { train: [example], validation: [] }, "validation"],
    ["an example without an assistant", { train: [{ messages: [{ role: "user", content: "hi" }] }] }, "train"],
  ])("rejects %s before any request", async (_, data, param) => {
    const { uploader, calls } = store();
    await expect(uploadDataset(uploader, { name: "data", ...data })).rejects.toMatchObject({ code: "E_DATA", param });
    expect(calls).toEqual([]);
  });

  it("rejects with the signal's own reason, and with an error of the source unchanged", async () => {
    const { uploader } = store();
    const reason = new Error("enough");
    const aborted = uploadDataset(uploader, { name: "data", train: [example], signal: AbortSignal.abort(reason) });
    await expect(aborted).rejects.toBe(reason);
    const broken = Dataset.from([sampled(1)]).map(() => Promise.reject(reason));
    await expect(uploadDataset(uploader, { name: "data", train: broken })).rejects.toBe(reason);
  });

  it("resumes an interrupted upload to the embedded service without sending stored files again", async () => {
    const { service: running } = await startTestService();
    const service = await connect({ dataDir: running.dataDir, apiKey: running.apiKey });
    onTestFinished(() => service.close());
    const puts: string[] = [];
    let isBroken = true;
    const { artifacts } = service;
    const flaky: ArtifactUploader = {
      artifacts: {
        ...artifacts,
        putFile: async (id, path, body, options) => {
          if (isBroken && path === "metadata.json") throw new Error("the network went away");
          puts.push(path);
          await artifacts.putFile(id, path, body, options);
        },
      },
    };
    const train = [sampled(1), example];
    await expect(uploadDataset(flaky, { name: "data", train })).rejects.toThrow("the network went away");
    isBroken = false;
    const { url } = await uploadDataset(flaky, { name: "data", train });
    expect(url).toMatch(/\/datasets\/data:v0$/);
    expect(puts).toEqual(["trajectories.jsonl", "metadata.json"]);
    expect((await uploadDataset(service, { name: "data", train })).url).toBe(url);
    expect((await uploadDataset(service, { name: "data", train: [example] })).url).toMatch(/:v1$/);
  });
});
