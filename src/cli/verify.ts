import { Command } from "commander";
import type { Finding } from "../service/stored-files/verify.ts";
import { printLine } from "../util/output.ts";

/** Creates the command `whetstone verify`, which compares the files of a data directory with their digests. Changes nothing. */
export function verifyCommand(): Command {
  return new Command("verify")
    .description("compare every file of a data directory with its digest; changes nothing, and a service may run meanwhile")
    .option("--data-dir <path>", "the data directory (default: WHETSTONE_HOME, or .whetstone)")
    .option("--json", "print the result as one JSON object")
    .action(run);
}

async function run({ dataDir, json = false }: { readonly dataDir?: string; readonly json?: boolean }): Promise<void> {
  // Imported lazily: `--help` needs no native binary.
  const { defaultDataDirectory } = await import("../service/data-directory.ts");
  const { verifyDataDirectory } = await import("../service/stored-files/verify.ts");
  const result = await verifyDataDirectory(dataDir ?? defaultDataDirectory());
  const isIntact = result.missing.length + result.damaged.length === 0;
  if (json) {
    printLine(JSON.stringify({ intact: isIntact, ...result }));
  } else {
    const list = (state: string, findings: readonly Finding[]) =>
      findings.forEach(({ path, subject }) => printLine(`${state}: ${path} (${subject})`));
    list("missing", result.missing);
    list("damaged", result.damaged);
    list("without a digest", result.unknown);
    for (const path of result.unreferenced) printLine(`unreferenced: ${path}`);
    const { files, bytes, seconds, missing, damaged, unknown, unreferenced } = result;
    printLine(
      `${result.data_dir}: ${isIntact ? "intact" : "damaged"}; ${files} files, ${(bytes / 1e6).toFixed(1)} MB in ${seconds.toFixed(1)} s; ` +
        `${missing.length} missing, ${damaged.length} damaged, ${unknown.length} without a digest, ${unreferenced.length} unreferenced`,
    );
  }
  if (!isIntact) process.exitCode = 1;
}
