import { configDefaults, defineConfig } from "vitest/config";

/** Read by scripts/test-summary.js. */
const report = "node_modules/.cache/whetstone/tests.json";

/** Whole runs of the recipes, minutes each: `vitest run --mode recipes`, and no part of the ordinary tests. */
const wholeRuns = "test/recipes/full/**/*.test.ts";

export default defineConfig(({ mode }) => ({
  // `import … from "whetstone"` in tests, recipes and docs means src, without a build.
  resolve: { conditions: ["whetstone/source", "node"] },
  ssr: { resolve: { conditions: ["whetstone/source", "node"] } },
  test: {
    include: mode === "recipes" ? [wholeRuns] : ["test/**/*.test.ts"],
    exclude: mode === "recipes" ? configDefaults.exclude : [...configDefaults.exclude, wholeRuns],
    setupFiles: ["test/setup.ts"],
    pool: "forks",
    // Files of one fork share the modules they import: reading them anew for each file took a quarter of the time.
    isolate: false,
    // Every fork may start an engine with two workers of its own: more forks than this only fight over the cores.
    maxWorkers: 2,
    testTimeout: 30_000,
    // The default of a second is luck where a test shares two cores with an engine that trains.
    expect: { poll: { timeout: 15_000 } },
    hookTimeout: 30_000,
    reporters: ["default", ["json", { outputFile: report }]],
    coverage: { include: ["src/**/*.ts"], exclude: ["src/page/**"], reporter: ["text", "html"] },
  },
}));
