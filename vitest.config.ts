import { join } from "node:path";
import { configDefaults, defineConfig, type Plugin } from "vitest/config";

/** Read by scripts/test-summary.js. */
const report = "node_modules/.cache/whetstone/tests.json";

/** Whole runs of the recipes, minutes each: `vitest run --mode recipes`, and no part of the ordinary tests. */
const wholeRuns = "test/recipes/full/**/*.test.ts";

/** Tests on real pretrained models, which are not part of the repository: `WHETSTONE_REAL_MODEL=<directory> vitest run --mode real`. */
const realModels = "test/real/**/*.test.ts";

/** Test files of each mode other than the ordinary tests. */
const MODES: Readonly<Record<string, string>> = { recipes: wholeRuns, real: realModels };

/** Modules of `src` start the workers of the build, see test/global-setup.ts. */
const builtWorkers: Plugin = {
  name: "built-workers",
  enforce: "pre",
  resolveId: (source, importer) =>
    source.endsWith("/spawn-worker.ts") && importer?.startsWith(join(import.meta.dirname, "src")) === true
      ? join(import.meta.dirname, "test/support/spawn-worker.ts")
      : null,
};

export default defineConfig(({ mode }) => ({
  plugins: [builtWorkers],
  // `import … from "whetstone"` in tests, recipes and docs means src, without a build.
  resolve: { conditions: ["whetstone/source", "node"] },
  ssr: { resolve: { conditions: ["whetstone/source", "node"] } },
  test: {
    include: [MODES[mode] ?? "test/**/*.test.ts"],
    exclude: mode in MODES ? configDefaults.exclude : [...configDefaults.exclude, ...Object.values(MODES)],
    globalSetup: ["test/global-setup.ts"],
    setupFiles: ["test/setup.ts"],
    pool: "forks",
    // Files of one fork share the modules they import: reading them anew for each file took a quarter of the time.
    isolate: false,
    // More than two cores have work for: a fifth of the time of a test file is spent waiting for processes, timers and disks.
    maxWorkers: 3,
    // For tests that hang: working ones end long before, also on a slow machine.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
    reporters: ["default", ["json", { outputFile: report }]],
    // The display of progress would be the larger part of the output.
    env: { WHETSTONE_PROGRESS: "0" },
    coverage: { include: ["src/**/*.ts"], exclude: ["src/lab/page/**"], reporter: ["text", "html"] },
  },
}));
