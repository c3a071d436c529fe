/** The service without the optional packages: nothing of them is loaded unless an option asks for it. */
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryDirectory } from "../support.ts";

/** Makes the optional packages unresolvable, and runs a program in a child process. */
async function runWithoutPackages(program: string): Promise<string> {
  const directory = await temporaryDirectory();
  const hook = `export async function resolve(name, context, next) {
  if (["prom-client", "bullmq", "ioredis"].includes(name) || name.startsWith("@opentelemetry/")) throw new Error("the optional package " + name + " is loaded");
  return next(name, context);
}`;
  const register = `import { register } from "node:module"; register("data:text/javascript," + encodeURIComponent(${JSON.stringify(hook)}));`;
  await writeFile(join(directory, "register.mjs"), register);
  await writeFile(
    join(directory, "program.mts"),
    program.replaceAll("SRC", join(process.cwd(), "src")).replaceAll("DATA", join(directory, "data")),
  );
  const args = [
    "--conditions=whetstone/source",
    "--import",
    "tsx",
    "--import",
    join(directory, "register.mjs"),
    join(directory, "program.mts"),
  ];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk) => (output += String(chunk)));
  child.stderr.on("data", (chunk) => (output += String(chunk)));
  await new Promise((resolve) => child.once("close", resolve));
  return output;
}

it("samples without the optional packages, and names the package that an option needs", async () => {
  const output = await runWithoutPackages(`
import { connect } from "SRC/index.ts";
import { startTestService } from "SRC/testing/index.ts";
import { enableTracing } from "SRC/tracing/index.ts";
import { bullmq } from "SRC/library/brokers/bullmq.ts";
const test = await startTestService({ dataDir: "DATA", answer: () => "fine" });
const service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
const { choices } = await service.chat.completions.create({ model: "whetstone-tiny", messages: [{ role: "user", content: "hi" }] });
console.log(choices[0].message.content);
await service.close();
await test.close();
const broker = bullmq({ connection: "redis://127.0.0.1" });
const attempts = [() => startTestService({ metrics: true }), () => enableTracing(), () => broker.openSender(), () => broker.openReceiver({ lockSeconds: 60 })];
for (const attempt of attempts)
  await attempt().catch((error) => console.log(error.code, error.message));
`);
  expect(output.split("\n")).toEqual([
    "fine",
    expect.stringMatching(/^E_CONFIG .*npm install prom-client/u),
    expect.stringMatching(/^E_CONFIG .*npm install @opentelemetry\/api/u),
    expect.stringMatching(/^E_CONFIG .*npm install bullmq ioredis/u),
    expect.stringMatching(/^E_CONFIG .*npm install bullmq ioredis/u),
    "",
  ]);
}, 120_000);
