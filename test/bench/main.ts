/**
 * Runs one benchmark: `npm run bench -- <name> [options]`, where `<name>` is a file `test/bench/<name>.bench.ts` that exports `run`.
 */
import { readdir } from "node:fs/promises";
import { OptionError } from "./support.ts";

/** Exports of a benchmark file. The benchmark prints its own results. */
interface Benchmark {
  run(args: string[]): Promise<void>;
}

const SUFFIX = ".bench.ts";

async function main([name, ...args]: string[]): Promise<void> {
  const files = await readdir(import.meta.dirname);
  const names = files.flatMap((file) => (file.endsWith(SUFFIX) ? [file.slice(0, -SUFFIX.length)] : [])).toSorted();
  if (name === undefined || !names.includes(name)) {
    const came = name === undefined ? "no name" : `\`${name}\``;
    console.error(`Expected the name of a benchmark, got ${came}. Usage: npm run bench -- <name> [options]`);
    console.error(names.length === 0 ? "There are no benchmarks yet." : `Benchmarks: ${names.join(", ")}`);
    process.exitCode = 2;
    return;
  }
  const benchmark = (await import(`./${name}${SUFFIX}`)) as Benchmark;
  try {
    await benchmark.run(args);
  } catch (error) {
    const message = optionMessage(error);
    if (message === null) throw error;
    console.error(`${message}. The options are described at the top of test/bench/${name}${SUFFIX}`);
    process.exitCode = 1;
  }
}

/** Returns the message about an invalid option; null for any other error. */
function optionMessage(error: unknown): string | null {
  if (error instanceof OptionError) return error.message;
  const isParseError = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS_");
  // Further sentences are about positional arguments, which no benchmark has.
  return isParseError ? error.message.split(". ")[0]! : null;
}

await main(process.argv.slice(2));
