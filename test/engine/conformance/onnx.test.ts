import { createOnnxEngine } from "../../../src/engine/index.ts";
import { ALL_RULES, BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

engineConformance("the embedded engine", async () => {
  const engine = await createOnnxEngine({ baseModels: { [BASE]: BASE_DIRECTORY } });
  return { engine, lora: { rank: 4 }, rules: ALL_RULES, draws: 2000, close: () => engine.close() };
});
