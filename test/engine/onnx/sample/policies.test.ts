/** Weights and caches that the sampler releases after their last use. */
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Program, type Tensors } from "../../../../src/engine/onnx/runtime/program.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { type HostPolicyWeights, hostWeights } from "../../../../src/engine/onnx/sample/host-weights.ts";
import { PublishedPolicies, type PublishedPolicy } from "../../../../src/engine/onnx/sample/policies.ts";
import { Sampler } from "../../../../src/engine/onnx/sample/sampler.ts";
import { deferred } from "../../../../src/base/util/deferred.ts";

const oracle = join(import.meta.dirname, "../../../oracle/llama/model");
let scratch: string;
beforeAll(async () => void (scratch = await mkdtemp(join(tmpdir(), "whetstone-policies-"))));
afterAll(() => rm(scratch, { recursive: true, force: true }));

test("reads a base once for all its policies, and again after the last was released", async () => {
  const base = { id: "base", directory: join(scratch, "base") };
  await cp(oracle, base.directory, { recursive: true });
  const forgotten: PublishedPolicy<HostPolicyWeights>[] = [];
  const policies = new PublishedPolicies(hostWeights(), (policy) => forgotten.push(policy));
  await expect(policies.load("none", base, join(scratch, "nothing"))).rejects.toThrow();
  await policies.load("a", base, undefined);
  const a = policies.acquire("a");
  await changeLastWeight(join(base.directory, "model.safetensors"));

  policies.release("a");
  await policies.load("b", base, undefined);
  policies.releaseUse("a", a);
  expect(forgotten).toEqual([a]);
  await policies.load("c", base, undefined);
  const [b, c] = [policies.acquire("b"), policies.acquire("c")];
  expect(b.weights).toBe(a.weights);
  expect(c.weights).toBe(a.weights);
  for (const [id, policy] of Object.entries({ b, c })) {
    policies.release(id);
    policies.releaseUse(id, policy);
  }
  await policies.load("d", base, undefined);
  expect(policies.acquire("d").weights.fed.flat).not.toEqual(a.weights.fed.flat);
});

test("a fully trained policy keeps its base's configuration and not the base's weights", async () => {
  const base = { id: "base", directory: join(scratch, "other") };
  await cp(oracle, base.directory, { recursive: true });
  const policies = new PublishedPolicies(hostWeights(), () => {});
  await policies.load("base", base, undefined);
  const own = policies.acquire("base");
  await policies.add("trained", base, { flat: own.weights.fed.flat.slice(), lora: null });
  expect(policies.acquire("trained").weights.config).toBe(own.weights.config);
  policies.release("base");
  policies.releaseUse("base", own);
  await changeLastWeight(join(base.directory, "model.safetensors"));
  await policies.load("again", base, undefined);
  const again = policies.acquire("again").weights;
  expect(again.config).toBe(own.weights.config);
  expect(again.fed.flat).not.toEqual(own.weights.fed.flat);
});

test("a sampler holds no weights after the release of its last policy", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const { promise, resolve, reject } = deferred<void>();
  const sampler = new Sampler(
    { threads: 1 },
    (events) => events.forEach(({ token }) => token.finish && resolve()),
    (_requests, error) => reject(error),
    onHost(1),
  );
  let weights: WeakRef<object> | undefined;
  const { run } = Program.prototype;
  Program.prototype.run = function (this: Program, feeds: Tensors, fetches) {
    weights ??= new WeakRef((feeds["embedding"]!.data as Float32Array).buffer);
    return run.call(this, feeds, fetches);
  };
  try {
    await sampler.loadPolicy("p", { id: "base", directory: oracle }, undefined);
    const params = { maxTokens: 3, temperature: 1, topP: 1, topK: 0, seed: 1n, stopTokenIds: [], topLogprobs: 0 };
    sampler.add(1, "p", Int32Array.of(1, 2, 3), params);
    await promise;
  } finally {
    Program.prototype.run = run;
  }
  // An assertion about the object itself would hold it.
  const isHeld = () => weights?.deref() !== undefined;
  expect(isHeld()).toBe(true);
  sampler.releasePolicy("p");
  const isHeldAfterCollection = () => {
    collect();
    return isHeld();
  };
  await expect.poll(isHeldAfterCollection).toBe(false);
  // The sampler still answers after the release.
  expect(() => sampler.releasePolicy("p")).not.toThrow();
});

async function changeLastWeight(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes.writeFloatLE(0.5, bytes.length - 4);
  await writeFile(path, bytes);
}
