/**
 * A service in a process of its own that watches its own event loop: `latency-host.ts <HostInput as JSON>`, over an IPC channel.
 *
 * Sends `{ url, apiKey }` once it listens. Answers `"take"` with the event loop's delays since the last answer, `"close"` by closing.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { createOnnxEngine, type Engine } from "whetstone/engine";
import { startService } from "whetstone/service";
import type { HostInput, LoopDelay } from "./latency.bench.ts";

/** Sampling interval of the histogram, in ms; delays are measured in addition to it. */
const RESOLUTION_MS = 1;

const { dataDir, directory, isFresh, more, trainerThreads, trainerNiceness } = JSON.parse(process.argv[2]!) as HostInput;
const engine = await createOnnxEngine({ baseModels: { "whetstone-tiny": directory, ...more }, trainerThreads, trainerNiceness });
// No stop ids: every stream has its requested length with any weights.
const talkative: Engine = new Proxy(engine, {
  get(target, name: keyof Engine) {
    if (name === "sample")
      return ((policy, prompt, params, options) =>
        target.sample(policy, prompt, { ...params, stopTokenIds: [] }, options)) satisfies Engine["sample"];
    if (name === "loadPolicy" && isFresh)
      return (async ({ base }) => target.publish(await target.createModel({ base, seed: 1, fresh: true }))) satisfies Engine["loadPolicy"];
    return (target[name] as (...args: unknown[]) => unknown).bind(target);
  },
});
// Templates of requests are among the fields that `limits` measures.
const service = await startService({ dataDir, engine: talkative, limits: { chat: { trustRequestTemplates: true } } });
const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
histogram.enable();
process.on("message", (message) => {
  if (message === "close") process.disconnect();
  if (message !== "take") return;
  const ms = (nanoseconds: number) => Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS);
  process.send!({ p50: ms(histogram.percentile(50)), p99: ms(histogram.percentile(99)), max: ms(histogram.max) } satisfies LoopDelay);
  histogram.reset();
});
// A benchmark that was interrupted must not leave a running service.
process.once("disconnect", () => void service.close({ graceMs: 0 }));
process.send!({ url: service.url, apiKey: service.apiKey });
