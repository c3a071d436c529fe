/**
 * Runs npm scripts one after the other, all of them even if one fails, and ends with one line each:
 * `node scripts/steps.js typecheck+lint test:run`. Scripts joined by `+` run at the same time; their output is printed when each ends.
 *
 * Unlike `a && b && c`, one run reports all failures.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";

/** Runs one script; with `isBuffered`, prints its output at the end. */
async function run(name, isBuffered) {
  const title = `\n── ${name}`;
  if (!isBuffered) console.log(title);
  const start = performance.now();
  const child = spawn("npm", ["run", "--silent", name], {
    stdio: ["ignore", ...(isBuffered ? ["pipe", "pipe"] : ["inherit", "inherit"])],
    shell: process.platform === "win32",
  });
  const output = isBuffered ? Promise.all([text(child.stdout), text(child.stderr)]) : [];
  const [status] = await once(child, "close");
  if (isBuffered) console.log([title, ...(await output)].join("\n").trimEnd());
  return { name, passed: status === 0, seconds: (performance.now() - start) / 1000 };
}

const results = [];
for (const step of process.argv.slice(2)) {
  const names = step.split("+");
  results.push(...(await Promise.all(names.map((name) => run(name, names.length > 1)))));
}

console.log("");
for (const { name, passed, seconds } of results) console.log(`${passed ? "pass" : "FAIL"}  ${name} (${seconds.toFixed(1)} s)`);
if (results.some(({ passed }) => !passed)) process.exitCode = 1;
