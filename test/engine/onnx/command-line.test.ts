import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { ROOT } from "../../project/files.ts";

const program = `
import { createOnnxEngine } from "whetstone/engine";
try {
  const engine = await createOnnxEngine({ baseModels: { base: ${JSON.stringify(join(ROOT, "models/whetstone-tiny"))} } });
  const model = await engine.createModel({ base: "base", seed: 1 });
  await engine.forwardBackward(model, [{ tokens: Int32Array.of(1, 2), weights: Float32Array.of(0, 1) }], { kind: "cross-entropy" });
  await engine.close();
  console.log("computed");
} catch ({ code, message }) {
  console.log(code + ": " + message);
}
`;

async function outcomeWith(argument: string): Promise<string> {
  const args = ["--input-type=module", "--eval", program, argument];
  return (await promisify(execFile)(process.execPath, args, { cwd: ROOT })).stdout.trim();
}

test.runIf(process.platform === "linux")("a command line that would end the process with a segmentation fault is an error", async () => {
  expect(await outcomeWith("x".repeat(10_000))).toBe("computed");
  expect(await outcomeWith("x".repeat(20_000))).toMatch(/^E_CONFIG: Expected a command line of at most 12000 bytes, got 2\d{4}/u);
});
