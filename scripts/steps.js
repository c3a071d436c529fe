/**
 * Runs npm scripts one after the other, all of them whatever fails, and ends with one line each: `node scripts/steps.js lint test:run`.
 *
 * Not `a && b && c`: one run should tell everything that is wrong.
 */
import { spawnSync } from "node:child_process";

const results = process.argv.slice(2).map((name) => {
  console.log(`\n── ${name}`);
  const start = performance.now();
  const { status, error } = spawnSync("npm", ["run", "--silent", name], {
    stdio: ["ignore", "inherit", "inherit"],
    shell: process.platform === "win32",
  });
  if (error) throw error;
  return { name, passed: status === 0, seconds: (performance.now() - start) / 1000 };
});

console.log("");
for (const { name, passed, seconds } of results) console.log(`${passed ? "pass" : "FAIL"}  ${name} (${seconds.toFixed(1)} s)`);
if (results.some(({ passed }) => !passed)) process.exitCode = 1;
