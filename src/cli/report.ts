/** Command `whetstone report`: the HTML report of a run directory. */
import { pathToFileURL } from "node:url";
import { Command } from "commander";
import { writeReport } from "../lab/report/index.ts";
import { formatBytes } from "../base/util/units.ts";
import { integer } from "./arguments.ts";
import { openBrowser } from "./open-browser.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Options of the command. */
interface ReportOptions extends OutputOptions {
  readonly out?: string;
  readonly steps?: number;
  readonly open?: boolean;
}

/** Creates the command `whetstone report <run>`, which writes the report of a run directory. */
export function reportCommand(): Command {
  return new Command("report")
    .description("write the report of a run directory, also of a run in progress")
    .argument("<run>", "run directory")
    .option("--out <path>", "file to write (default: report.html in the run directory)")
    .option("--steps <number>", "max steps with trajectories in the page (default: 24)", integer(0))
    .option("--open", "open the page in the browser")
    .action(report);
}

/** Runs the command. */
async function report(run: string, options: ReportOptions): Promise<void> {
  const { out, steps, open = false } = options;
  const written = await writeReport(run, { path: out, steps });
  printResult(options, written, function* ({ path, sizeBytes: size }) {
    yield `${path} (${formatBytes(size)}, trajectories of ${written.steps.length} steps)`;
  });
  if (open) openBrowser(pathToFileURL(written.path).href);
}
