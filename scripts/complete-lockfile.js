/**
 * Adds to package-lock.json the optional packages that it names but does not list: `node scripts/complete-lockfile.js`.
 *
 * A registry mirror need not carry the binaries of other platforms, and npm then leaves them out of the lockfile without a word.
 * `npm ci` of npm 11 refuses such a lockfile ("Missing: … from lock file"), so each gets its entry: the exact version its parent asks
 * for, and the platform its name states, which is what makes npm skip it elsewhere. Run it after any `npm install`; a test checks it.
 */
import { readFileSync, writeFileSync } from "node:fs";

const SYSTEMS = ["aix", "android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "win32"];
const PROCESSORS = ["arm", "arm64", "ia32", "loong64", "mips64el", "ppc64", "riscv64", "s390x", "x64"];

/** The platform a binary package states in its name: `@oxlint/binding-linux-x64-musl`, `@esbuild/darwin-arm64`. */
function platformOf(name) {
  const words = name.split("/").at(-1).split("-");
  const os = SYSTEMS.find((system) => words.includes(system));
  const cpu = PROCESSORS.find((processor) => words.includes(processor));
  if (os === undefined || cpu === undefined)
    throw new Error(`Expected a platform in the package name, got \`${name}\`: add its entry by hand`);
  const libc = words.includes("musl") ? ["musl"] : os === "linux" && words.includes("gnu") ? ["glibc"] : undefined;
  return { cpu: [cpu], os: [os], ...(libc && { libc }) };
}

/** The entries `lock` names as optional dependencies, by an exact version, and does not hold. */
export function missingOptionals(lock) {
  const missing = {};
  for (const [at, entry] of Object.entries(lock.packages)) {
    for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
      const held = `node_modules/${name}` in lock.packages || `${at}/node_modules/${name}` in lock.packages;
      if (!held) missing[`node_modules/${name}`] = { version, ...platformOf(name), ...(entry.dev && { dev: true }), optional: true };
    }
  }
  return missing;
}

if (process.argv[1] === import.meta.filename) {
  const path = new URL("../package-lock.json", import.meta.url);
  const lock = JSON.parse(readFileSync(path, "utf8"));
  const missing = missingOptionals(lock);
  const packages = Object.entries({ ...lock.packages, ...missing }).toSorted(([a], [b]) => a.localeCompare(b, "en"));
  writeFileSync(path, `${JSON.stringify({ ...lock, packages: Object.fromEntries(packages) }, null, 2)}\n`);
  console.log(`${Object.keys(missing).length} entries added`);
}
