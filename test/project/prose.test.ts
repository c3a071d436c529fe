/** Wording of doc comments, comments and documentation: contract first, nouns instead of pronouns, the vocabulary of the field. */
import { describe, expect, it } from "vitest";
import { projectFiles, read } from "./files.ts";

/** Doc comments per 1,000 that may open with a question word or a pronoun. */
const MAX_OPENINGS = 5;
/** Matches of {@link PARAPHRASES} per 10,000 words. */
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

interface Passage {
  readonly file: string;
  readonly text: string;
}

const withoutCode = (text: string) => text.replaceAll(/```[\s\S]*?```/gu, "");

const files = [
  ...["src", "recipes", "examples", "docs"].flatMap((folder) => projectFiles(folder)),
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
];
const sources = files.filter((file) => /\.(?:ts|js)$/u.test(file));
const docComments: Passage[] = sources.flatMap((file) =>
  [...read(file).matchAll(/\/\*\*([\s\S]*?)\*\//gu)].map(([, body = ""]) => ({
    file,
    text: withoutCode(body.replaceAll(/^\s*\*? ?/gmu, "")).trim(),
  })),
);
const lineComments: Passage[] = sources.flatMap((file) =>
  [...read(file).matchAll(/(?:^|\s)\/\/ (.*)$/gmu)].map(([, text = ""]) => ({ file, text })),
);
const pages: Passage[] = files
  .filter((file) => file.endsWith(".md") && !file.startsWith("docs/notebook/"))
  .map((file) => ({ file, text: withoutCode(read(file)) }));

describe("the wording of comments and documentation", () => {
  it("opens doc comments with a verb or a noun", () => {
    const found = docComments.filter(({ text }) => OPENING.test(text)).map(({ file, text }) => `${file}: ${text.slice(0, 100)}`);
    expect(docComments.length).toBeGreaterThan(1000);
    if ((found.length * 1000) / docComments.length > MAX_OPENINGS) expect(found).toEqual([]);
  });

  it("uses the terms of the field instead of paraphrases", () => {
    const passages = [...docComments, ...lineComments, ...pages];
    const words = passages.reduce((sum, { text }) => sum + (text.match(/[A-Za-z][A-Za-z'-]*/gu) ?? []).length, 0);
    const found = passages.flatMap(({ file, text }) => [...text.matchAll(PARAPHRASES)].map(([phrase]) => `${file}: ${phrase}`));
    expect(words).toBeGreaterThan(50_000);
    if ((found.length * 10_000) / words > MAX_PARAPHRASES) expect(found).toEqual([]);
  });
});
