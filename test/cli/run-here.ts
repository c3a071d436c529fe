import { onTestFinished, vi } from "vitest";
import { run } from "../../src/cli/program.ts";

/** Runs a CLI command in this process. */
export async function runHere(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const written = { stdout: "", stderr: "" };
  const spies = (["stdout", "stderr"] as const).map((name) =>
    vi.spyOn(process[name], "write").mockImplementation((text) => {
      written[name] += String(text);
      return true;
    }),
  );
  onTestFinished(() => void (process.exitCode = undefined));
  try {
    const code = await run(args);
    process.exitCode = undefined;
    return { code, ...written };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}
