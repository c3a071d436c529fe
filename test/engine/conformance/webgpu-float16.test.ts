/** The conformance suite on the device `webgpu` with float16 weights, where an adapter with shader-f16 is installed. */
import { createFloat16Engine, missingFloat16 } from "../../support/float16-adapter.ts";
import { ALL_RULES, BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

engineConformance(
  "the embedded engine with float16 weights on a software adapter",
  async () => {
    const engine = await createFloat16Engine({ baseModels: { [BASE]: BASE_DIRECTORY } });
    // Models that train every parameter have float32 weights. The weights of the base model have 24 bits, of which float16 keeps 11.
    const lora = { lora: { rank: 4 }, trainsAdapters: true };
    return { engine, ...lora, rules: ALL_RULES, tolerance: 1e-2, draws: 100, close: () => engine.close() };
  },
  { missing: missingFloat16, timeoutMs: 120_000 },
);
