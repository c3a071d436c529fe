/**
 * Runs one benchmark: `npm run bench -- <name> [options]`, where `<name>` is a file `test/bench/<name>.bench.ts` that exports `run`.
 */
import { readdir } from "node:fs/promises";

/** What a benchmark's file exports. It prints its own results. */
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
  await benchmark.run(args);
}

await main(process.argv.slice(2));
