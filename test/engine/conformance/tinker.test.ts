import { createOnnxEngine } from "../../../src/engine/index.ts";
import { createTinkerEngine, type TinkerEngineOptions } from "../../../src/engine/tinker/engine.ts";
import { startTinkerServer } from "../../support/tinker-server.ts";
import { BASE, BASE_DIRECTORY, NO_RULES, type Subject } from "./subject.ts";
import { engineConformance } from "./suite.ts";

async function start(reduction: "sum" | "sequence-mean", options: Partial<TinkerEngineOptions> = {}): Promise<Subject> {
  const behind = await createOnnxEngine({ baseModels: { [BASE]: BASE_DIRECTORY } });
  const server = await startTinkerServer({ engine: behind, base: BASE, baseName: `/models/${BASE}`, reduction });
  const engine = await createTinkerEngine({ url: server.url, baseModels: { [BASE]: BASE_DIRECTORY }, patienceMs: 5_000, ...options });
  return {
    engine,
    lora: { rank: 4 },
    rules: NO_RULES,
    draws: 500,
    async close() {
      await engine.close();
      await server.close();
      await behind.close();
    },
  };
}

engineConformance("a Tinker server that adds losses, in JSON", () => start("sum"));
engineConformance("a Tinker server that adds losses, in protobuf", () => start("sum", { encoding: "protobuf" }));
engineConformance("a Tinker server that averages losses", () => start("sequence-mean"));
