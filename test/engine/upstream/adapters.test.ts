/** Adapters loaded on an upstream, under concurrent requests and failures. */
import { describe, expect, it } from "vitest";
import { UpstreamAdapters } from "../../../src/engine/upstream/adapters.ts";
import { UpstreamCapabilities } from "../../../src/engine/upstream/capabilities.ts";
import type { Upstream, UpstreamAnswer } from "../../../src/engine/upstream/upstream.ts";

const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Returns an upstream that delays each unload until released, and lists the loaded adapters. */
function heldUpstream(maxIdleAdapters: number) {
  const loaded = new Set<string>();
  const asked: string[] = [];
  const unloads: (() => void)[] = [];
  const answer = (status: number, text = "{}"): UpstreamAnswer => ({
    status,
    contentType: "application/json",
    retryAfter: null,
    body: (async function* () {
      yield Buffer.from(text);
    })(),
  });
  let refusals = 0;
  const upstream: Upstream = {
    url: "http://127.0.0.1:1",
    baseModels: new Map(),
    options: { url: "", maxIdleAdapters },
    capabilities: new UpstreamCapabilities({ described: null, ask: () => Promise.resolve(200) }),
    contextLengthOf: () => null,
    async post(path, body) {
      const { lora_name: name } = JSON.parse(body) as { lora_name: string };
      asked.push(`${path.includes("unload") ? "unload" : "load"} ${name}`);
      if (path.includes("unload")) {
        await new Promise<void>((resolve) => unloads.push(resolve));
        loaded.delete(name);
        return answer(200);
      }
      if (refusals > 0) {
        refusals--;
        return answer(500, "no room");
      }
      if (loaded.has(name)) return answer(400, `The lora adapter '${name}' has already been loaded`);
      loaded.add(name);
      return answer(200);
    },
    close: () => Promise.resolve(),
  };
  return { upstream, loaded, asked, unloads, refuse: () => refusals++ };
}

describe("adapters of an upstream", () => {
  it("are loaded again after a running unload has finished", async () => {
    const { upstream, loaded, unloads } = heldUpstream(0);
    const adapters = new UpstreamAdapters(upstream, () => {});
    (await adapters.lease("a", "/a")).release();
    const lease = adapters.lease("a", "/a");
    await turnOfTheLoop();
    unloads.shift()!();
    const { name } = await lease;
    await turnOfTheLoop();
    expect([name, [...loaded]]).toEqual(["a", ["a"]]);
  });

  it("are loaded again after they were forgotten, as after a restart of the upstream", async () => {
    const { upstream, loaded, asked } = heldUpstream(4);
    const adapters = new UpstreamAdapters(upstream, () => {});
    const first = await adapters.lease("a", "/a");
    loaded.clear();
    first.forget();
    first.release();
    const second = await adapters.lease("a", "/a");
    // `forget` of the first lease refers to a removed entry.
    first.forget();
    await adapters.lease("a", "/a");
    expect([second.name, [...loaded], asked]).toEqual(["a", ["a"], ["load a", "load a"]]);
  });

  it("that fail to load evict no other adapter and are not unloaded", async () => {
    const { upstream, loaded, asked, refuse } = heldUpstream(1);
    const adapters = new UpstreamAdapters(upstream, () => {});
    (await adapters.lease("a", "/a")).release();
    refuse();
    await expect(adapters.lease("b", "/b")).rejects.toThrow("no room");
    expect([[...loaded], asked]).toEqual([["a"], ["load a", "load b"]]);
    await adapters.lease("b", "/b");
    expect(asked.at(-1)).toBe("load b");
  });
});
