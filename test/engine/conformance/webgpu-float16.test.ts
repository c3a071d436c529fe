/** The conformance suite on the device `webgpu` with float16 weights, where an adapter with shader-f16 is installed. */
import type { Engine } from "../../../src/engine/index.ts";
import { createFloat16Engine, missingFloat16 } from "../../support/float16-adapter.ts";
import { ALL_RULES, BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

/** Returns the engine with the one feature that has float32 weights left out of its capabilities, so that the suite trains adapters. */
function adaptersOnly(engine: Engine): Engine {
  return new Proxy(engine, {
    get(target, key) {
      if (key === "capabilities") return () => ({ ...target.capabilities(), fullParameter: false });
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

engineConformance(
  "the embedded engine with float16 weights on a software adapter",
  async () => {
    const engine = adaptersOnly(await createFloat16Engine({ baseModels: { [BASE]: BASE_DIRECTORY } }));
    // The weights of the base model have 24 bits, of which float16 keeps 11.
    return { engine, lora: { rank: 4 }, rules: ALL_RULES, tolerance: 1e-2, draws: 100, close: () => engine.close() };
  },
  { missing: missingFloat16, timeoutMs: 120_000 },
);
