/** Command `whetstone verify`: checks stored files against their digests, without a running service. */
import { Command } from "commander";
import type { FileFinding } from "../service/stored-files/verify.ts";
import { formatBytes, formatDuration } from "../base/util/units.ts";
import { EXIT_FAILURE } from "./failure.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Creates the command `whetstone verify`, which compares the files of a data directory with their digests. Changes nothing. */
export function verifyCommand(): Command {
  return new Command("verify")
    .description("compare every file of a data directory with its digest; changes nothing; a service may be running")
    .option("--data-dir <path>", "data directory (default: WHETSTONE_HOME, or .whetstone)")
    .option("--database <url>", "Postgres database of the service (default: WHETSTONE_DATABASE, or SQLite; not for a backup)")
    .option("--storage <url>", "S3 storage of the files (default: the one of the database)")
    .action(run);
}

/** Options of the command. */
interface VerifyOptions extends OutputOptions {
  readonly dataDir?: string;
  readonly storage?: string;
  readonly database?: string;
}

/** Runs the command. */
async function run({ dataDir, storage, database, ...options }: VerifyOptions): Promise<void> {
  // Imported lazily: `--help` needs no native binary.
  const { defaultDataDirectory } = await import("../service/disk/data-directory.ts");
  const { databaseUrl } = await import("../service/store/open-database.ts");
  const { verifyDataDirectory } = await import("../service/stored-files/verify.ts");
  const report = await verifyDataDirectory(dataDir ?? defaultDataDirectory(), { storage, database: databaseUrl(database) });
  const intact = report.missing.length + report.damaged.length === 0;
  printResult(options, { intact, ...report }, function* (result) {
    const list = (state: string, findings: readonly FileFinding[]) => findings.map(({ path, subject }) => `${state}: ${path} (${subject})`);
    yield* list("missing", result.missing);
    yield* list("damaged", result.damaged);
    yield* list("without a digest", result.unknown);
    yield* result.unreferenced.map((path) => `unreferenced: ${path}`);
    const { files, bytes, seconds, missing, damaged, unknown, unreferenced } = result;
    yield (
      `${result.data_dir}: ${intact ? "intact" : "damaged"}; ${files} files, ${formatBytes(bytes)} in ${formatDuration(seconds * 1000)}; ` +
        `${missing.length} missing, ${damaged.length} damaged, ${unknown.length} without a digest, ${unreferenced.length} unreferenced`
    );
  });
  if (!intact) process.exitCode = EXIT_FAILURE;
}
