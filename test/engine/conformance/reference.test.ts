import { createReferenceEngine } from "../../../src/testing/index.ts";
import { ALL_RULES, BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

engineConformance("the reference engine", async () => {
  const engine = createReferenceEngine({ baseModels: { [BASE]: BASE_DIRECTORY } });
  return { engine, lora: { rank: 4 }, rules: ALL_RULES, draws: 300, close: () => engine.close() };
});
