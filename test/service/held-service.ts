/** A service in a process of its own that stops for ever in its second optimizer step: to be killed. */
import { startService } from "whetstone/service";
import { createScriptedEngine, type ScriptedEngineOptions } from "whetstone/testing";

const [dataDir, bases] = process.argv.slice(2) as [string, string];
let steps = 0;
const engine = createScriptedEngine({
  bases: JSON.parse(bases) as NonNullable<ScriptedEngineOptions["bases"]>,
  before: async ({ verb }) => {
    if (verb !== "optimStep" || ++steps < 2) return;
    process.stdout.write("held\n");
    await new Promise(() => undefined);
  },
});
const { url, apiKey } = await startService({ dataDir, engine });
process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);
