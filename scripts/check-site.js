/**
 * Checks the built documentation without a network: `node scripts/check-site.js [site]`.
 *
 * Every link of every page must lead to a file of the site and, with a fragment, to an anchor of that file. Links to other hosts are not
 * followed, except that scripts, styles and images of other hosts are errors: the site opens from a folder.
 */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";

const TAG = /<(a|link|script|img|source|use)\b([^>]*)>/gu;
const ATTRIBUTE = /\b(href|src)="([^"]*)"/u;
const ANCHOR = /\b(?:id|name)="([^"]*)"/gu;

/** Returns one line per broken link of the pages below `site`. */
export function brokenLinks(site) {
  const pages = readdirSync(site, { recursive: true }).filter((path) => path.endsWith(".html"));
  if (pages.length === 0) throw new Error(`Expected pages in ${site}; build them with \`npm run docs\``);
  const texts = new Map(pages.map((page) => [join(site, page), readFileSync(join(site, page), "utf8")]));
  const anchors = new Map([...texts].map(([path, text]) => [path, new Set([...text.matchAll(ANCHOR)].map(([, id]) => decode(id)))]));
  return [...texts].flatMap(([path, text]) =>
    [...text.matchAll(TAG)].flatMap(([, tag, attributes]) => {
      const link = decode(ATTRIBUTE.exec(attributes)?.[2] ?? "");
      const reason = link === "" ? undefined : problem(site, path, tag, link, anchors);
      return reason === undefined ? [] : [`${relative(site, path).split(sep).join("/")}: ${link} ${reason}`];
    }),
  );
}

function problem(site, page, tag, link, anchors) {
  if (/^(?:[a-z]+:|\/\/)/iu.test(link)) return tag === "a" || link.startsWith("data:") ? undefined : "needs a network";
  const [path, fragment] = link.split("#");
  const target = path === "" ? page : resolve(dirname(page), decodeURIComponent(path.replace(/\?.*$/u, "")));
  if (relative(site, target).startsWith("..")) return "leaves the site";
  if (!existsSync(target) || !statSync(target).isFile()) return "is not a file of the site";
  if (fragment && anchors.has(target) && !anchors.get(target).has(decodeURIComponent(fragment))) return "has no such anchor";
  return undefined;
}

function decode(html) {
  return html.replaceAll("&amp;", "&").replaceAll("&quot;", '"').replaceAll("&#39;", "'").replaceAll("&lt;", "<").replaceAll("&gt;", ">");
}

if (process.argv[1] === import.meta.filename) {
  const site = resolve(process.argv[2] ?? "site");
  const broken = brokenLinks(site);
  for (const line of broken) console.error(line);
  if (broken.length > 0) process.exitCode = 1;
  else console.log(`The links of ${site} are whole; open ${join(site, "index.html")}`);
}
