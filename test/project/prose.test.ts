/** Wording of doc comments, comments and documentation: contract first, nouns instead of pronouns, the vocabulary of the field. */
import { describe, expect, it } from "vitest";
import { projectFiles, read } from "./files.ts";

/** Doc comments per 1,000 of a folder that may open with a question word or a pronoun. One is allowed in each folder. */
const MAX_OPENINGS = 5;
/** Matches of {@link PARAPHRASES} per 10,000 words of a folder's comments or of a page. One is allowed in each. */
const MAX_PARAPHRASES = 17;

const OPENING = /^(?:What|Where|How|Of|Those|That|It|They|One|Who|Whose|Which)\b/u;

/** Phrases that stand for a noun or a verb of the field. */
const PARAPHRASES = new RegExp(
  [
    String.raw`\bwhat (?:it|they|is|was|are|has|have|had|the|a|an|were|comes|came|does)\b`,
    String.raw`\b(?:whoever|whichever|whatever|whose|whom)\b`,
    String.raw`\b(?:those|that) of\b`,
    String.raw`\b(?:go|goes|gone|going|went) on\b`,
    String.raw`\b(?:that is none|are none|is none|is no)\b`,
    String.raw`\b(?:told|tells)\b`,
    String.raw`\bcarried out\b`,
    String.raw`\b(?:beside|behind)\b`,
  ].join("|"),
  "giu",
);

/** Pages of the project's directory. */
const ROOT_PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

/** Text of a folder's comments, or of a page. */
interface Prose {
  /** Bodies of doc comments; of a page none. */
  readonly docComments: string[];
  /** Doc comments, line comments and test names; of a page its text. */
  readonly passages: string[];
}

const withoutCode = (text: string) => text.replaceAll(/```[\s\S]*?```/gu, "");

/** Returns the bodies of the doc comments of a source file, without examples. */
function docCommentsOf(source: string): string[] {
  return [...source.matchAll(/\/\*\*([\s\S]*?)\*\//gu)].map(([, body = ""]) => withoutCode(body.replaceAll(/^\s*\*? ?/gmu, "")).trim());
}

/** Returns line comments, and in a test the names of its tests. */
function linesOf(file: string, source: string): string[] {
  const comments = [...source.matchAll(/(?:^|\s)\/\/ (.*)$/gmu)].map(([, text = ""]) => text);
  if (!file.startsWith("test/")) return comments;
  const names = source.matchAll(/(?:\b(?:it|test|describe)(?:\.\w+)*\(|\)\()\s*(["`])((?:(?!\1)[^\\\n]|\\.)*)\1/gu);
  return [...comments, ...[...names].map(([, , name = ""]) => name)];
}

/** Wing, or room of a wing, of a file of `src`; the first folder below `test`, `recipes`, `examples`, `scripts` and `template`. */
function folderOf(file: string): string {
  const folders = file.split("/").slice(0, -1);
  return folders.slice(0, folders[0] === "src" ? 3 : 2).join("/");
}

const prose = new Map<string, Prose>();
function proseOf(key: string): Prose {
  const found = prose.get(key) ?? { docComments: [], passages: [] };
  prose.set(key, found);
  return found;
}
for (const file of [
  ...["src", "test", "recipes", "examples", "scripts", "template", "docs"].flatMap((folder) => projectFiles(folder)),
  ...ROOT_PAGES,
]) {
  if (file.endsWith(".md")) proseOf(file).passages.push(withoutCode(read(file)));
  if (!/\.(?:tsx?|js)$/u.test(file)) continue;
  const source = read(file);
  const { docComments, passages } = proseOf(folderOf(file));
  docComments.push(...docCommentsOf(source));
  passages.push(...docCommentsOf(source), ...linesOf(file, source));
}

/** Whether `count` matches are more than one, and more than `max` in `unit`, of a text of length `total`. */
const isExceeded = (count: number, total: number, max: number, unit: number) => count > 1 && (count * unit) / total > max;

describe("the wording of comments, test names and documentation", () => {
  it("is measured in every folder and on every page", () => {
    expect([...prose.keys()]).toEqual(
      expect.arrayContaining(["src/base/util", "test/engine", "recipes/arithmetic", "docs/glossary.md", "README.md"]),
    );
    expect([...prose.values()].reduce((sum, { docComments }) => sum + docComments.length, 0)).toBeGreaterThan(5000);
  });

  const measured = [...prose];

  it.each(measured.filter(([, { docComments }]) => docComments.length > 0))(
    "opens doc comments with a verb or a noun in %s",
    (_, { docComments }) => {
      const found = docComments.filter((text) => OPENING.test(text)).map((text) => text.slice(0, 100));
      if (isExceeded(found.length, docComments.length, MAX_OPENINGS, 1000)) expect(found).toEqual([]);
    },
  );

  it.each(measured)("uses the terms of the field instead of paraphrases in %s", (_, { passages }) => {
    const words = passages.reduce((sum, text) => sum + (text.match(/[A-Za-z][A-Za-z'-]*/gu) ?? []).length, 0);
    const found = passages.flatMap((text) =>
      [...text.matchAll(PARAPHRASES)].map(({ index }) => text.slice(Math.max(0, index - 40), index + 60)),
    );
    if (isExceeded(found.length, words, MAX_PARAPHRASES, 10_000)) expect(found).toEqual([]);
  });
});
