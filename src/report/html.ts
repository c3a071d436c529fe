import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { InternalError } from "../errors.ts";
import { packageFile } from "../util/package-file.ts";
import type { PageData } from "./page-data.ts";

/**
 * Returns the complete HTML page. The page loads nothing: a Content-Security-Policy allows only its scripts and styles by hash, so that
 * markup in model output cannot run even if it is parsed as markup.
 */
export async function pageHtml(data: PageData): Promise<string> {
  const require = createRequire(import.meta.url);
  const plot = await text(require.resolve("uplot/dist/uPlot.iife.min.js"));
  const plotStyle = await text(require.resolve("uplot/dist/uPlot.min.css"));
  const style = `${plotStyle}\n${await text(packageFile("src/report/page/page.css"))}`;
  const script = await pageScript();
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf(plot)} ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  return [
    "<!doctype html>",
    '<html lang="en">',
    "<head>",
    '<meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    '<meta name="color-scheme" content="light dark">',
    '<meta name="referrer" content="no-referrer">',
    `<title>${escapeHtml(data.title)} · training run</title>`,
    `<style>${style}</style>`,
    "</head>",
    "<body>",
    "<noscript>This report draws itself with a script it carries; it loads nothing. Allow scripts for this file to read it.</noscript>",
    '<div id="page"></div>',
    `<script type="application/json" id="data">${scriptJson(data)}</script>`,
    `<script>${plot}</script>`,
    `<script type="module">${script}</script>`,
    "</body>",
    "</html>",
    "",
  ].join("\n");
}

/**
 * Serializes JSON for use inside a script element. `<` is escaped, so neither `</script>` nor `<!--` can occur, and so are the two line
 * separators that JSON allows and old scripts do not. `JSON.parse` returns the same value.
 */
export function scriptJson(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
}

/**
 * Returns the script of the page as one module without imports: `dist/report/page.js` of the build, or, if this module runs from source,
 * the same bundle made from `page/` (scripts/bundle.js). esbuild is a dependency of tsx, so a program that runs from source has it.
 */
async function pageScript(): Promise<string> {
  if (!import.meta.url.endsWith(".ts")) return text(packageFile("dist/report/page.js"));
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    absWorkingDir: fileURLToPath(packageFile(".")),
    entryPoints: ["src/report/page/main.ts"],
    bundle: true,
    format: "esm",
    charset: "utf8",
    write: false,
  });
  return outputFiles.map((file) => file.text).join("");
}

async function text(path: string | URL): Promise<string> {
  try {
    // A browser normalizes line ends to "\n" before hashing.
    return (await readFile(path, "utf8")).replaceAll("\r\n", "\n");
  } catch (error) {
    throw new InternalError(`A file of the report page is missing: ${String(path)}. Install the package again, with its \`src\``, {
      cause: error,
    });
  }
}

function hashOf(content: string): string {
  return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
}

function escapeHtml(value: string): string {
  return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
