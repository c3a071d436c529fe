/** HTML documents: the page of a report, and the frame that the dashboard uses too. */
import { createHash } from "node:crypto";
import { pageFiles } from "../../base/util/page-files.ts";
import type { PageData } from "./page-data.ts";

/**
 * Returns the complete HTML page. The page loads nothing: a Content-Security-Policy allows only its scripts and styles by hash, so that
 * markup in model output cannot run even if it is parsed as markup.
 */
export async function reportHtml(data: PageData): Promise<string> {
  const { script, style } = await pageFiles("report");
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const head = [
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    '<meta name="color-scheme" content="light dark">',
    '<meta name="referrer" content="no-referrer">',
    `<title>${escapeHtml(data.title)} · training run</title>`,
    `<style>${style}</style>`,
  ];
  return htmlDocument(head, [
    "<noscript>This report draws itself with a script it carries; it loads nothing. Allow scripts for this file to read it.</noscript>",
    '<div id="page"></div>',
    `<script type="application/json" id="data">${scriptJson(data)}</script>`,
    `<script type="module">${script}</script>`,
  ]);
}

/** Returns an HTML document in English from the elements of its head, without the encoding, and of its body. */
export function htmlDocument(head: readonly string[], body: readonly string[]): string {
  const start = ["<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">'];
  return [...start, ...head, "</head>", "<body>", ...body, "</body>", "</html>", ""].join("\n");
}

/**
 * Serializes JSON for use inside a script element. `<` is escaped, so neither `</script>` nor `<!--` can occur, and so are the two line
 * separators that JSON allows and old scripts do not. `JSON.parse` returns the same value.
 */
export function scriptJson(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
}

/** Returns the hash of an inline script or style for a Content-Security-Policy. */
function hashOf(content: string): string {
  return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
}

/** Escapes a text for the content of an element. */
function escapeHtml(value: string): string {
  return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
