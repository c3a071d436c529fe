import { defineConfig } from "vitest/config";

/** Read by scripts/test-summary.js. */
const report = "node_modules/.cache/whetstone/tests.json";

export default defineConfig({
  // `import … from "whetstone"` in tests, recipes and docs means src, without a build.
  resolve: { conditions: ["whetstone/source", "node"] },
  ssr: { resolve: { conditions: ["whetstone/source", "node"] } },
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    // Every fork may start an engine with two workers of its own: more forks than this only fight over the cores.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    reporters: ["default", ["json", { outputFile: report }]],
    coverage: { include: ["src/**/*.ts"], reporter: ["text", "html"] },
  },
});
