import { createReferenceEngine } from "../../../src/testing/reference/engine.ts";
import { BASE, BASE_DIRECTORY } from "./subject.ts";
import { engineConformance } from "./suite.ts";

engineConformance("the reference engine", async () => {
  const engine = createReferenceEngine({ baseModels: { [BASE]: BASE_DIRECTORY } });
  return { engine, lora: { rank: 4 }, draws: 300, close: () => engine.close() };
});
