/** The conformance suite on the device `webgpu`, where an adapter is installed. */
import { createOnnxEngine } from "../../../src/engine/index.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { ALL_RULES, BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

engineConformance(
  "the embedded engine on a software adapter",
  async () => {
    const engine = await createOnnxEngine({ baseModels: { [BASE]: BASE_DIRECTORY }, device: "webgpu" });
    return { engine, lora: { rank: 4 }, rules: ALL_RULES, draws: 100, close: () => engine.close() };
  },
  { missing: missingAdapter, timeoutMs: 120_000 },
);
