/** A service in a process of its own that stops for ever in its second optimizer step, or in the given call of its engine: to be killed. */
import { startService } from "whetstone/service";
import { variedScript } from "./fine-tuning/varied-script.ts";
import { createScriptedEngine, type ScriptedEngineOptions } from "whetstone/testing";

const [dataDir, bases, call = "optimStep", number = "2", database = ""] = process.argv.slice(2) as [string, string, ...string[]];
let calls = 0;
const engine = createScriptedEngine({
  bases: JSON.parse(bases) as NonNullable<ScriptedEngineOptions["bases"]>,
  script: variedScript,
  before: async ({ verb }) => {
    if (verb !== call || ++calls < Number(number)) return;
    process.stdout.write("held\n");
    await new Promise(() => undefined);
  },
});
const { url, apiKey } = await startService({ dataDir, engine, database, limits: { commitEverySteps: 3, jobLeaseMs: 2000 } });
process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);
