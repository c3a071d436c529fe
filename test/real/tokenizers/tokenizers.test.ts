/**
 * Real tokenizers against Hugging Face's library. `expected.py` writes the expected values; it runs here if `WHETSTONE_REAL_PYTHON` names a
 * Python with transformers and `WHETSTONE_REAL_TOKENIZERS` the directories of tokenizers, separated by `:`. Otherwise
 * `WHETSTONE_REAL_EXPECTED` names the folder of values written before.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type ChatTokenizer, loadTokenizer } from "../../../src/text/tokenizer/index.ts";

interface Expected {
  readonly directory: string;
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
  readonly withSpecial: readonly (readonly number[])[];
  readonly decoded: readonly string[];
  readonly skipped: readonly string[];
  readonly tokens: { readonly ids: readonly number[]; readonly decoded: readonly string[] };
}

function expectedFolder(): string | undefined {
  const { WHETSTONE_REAL_PYTHON: python, WHETSTONE_REAL_TOKENIZERS: directories, WHETSTONE_REAL_EXPECTED: written } = process.env;
  if (python === undefined || directories === undefined) return written;
  const folder = mkdtempSync(join(tmpdir(), "whetstone-tokenizers-"));
  execFileSync(python, [join(import.meta.dirname, "expected.py"), folder, ...directories.split(":")], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  return folder;
}

/** Decoded texts keep the space that SentencePiece puts in front, which `decode` of the reference removes. */
const isSameText = (got: string, expected: string): boolean => got === expected || got === ` ${expected}`;

function differences(tokenizer: ChatTokenizer, { texts, ids, withSpecial, decoded, skipped, tokens }: Expected): Record<string, string[]> {
  const wrong = (isRight: (text: string, index: number) => boolean): string[] => texts.filter((text, index) => !isRight(text, index));
  return {
    ids: wrong((text, index) => tokenizer.encode(text).join() === ids[index]!.join()),
    withSpecial: wrong((text, index) => tokenizer.encode(text, { addSpecialTokens: true }).join() === withSpecial[index]!.join()),
    decoded: wrong((_, index) => isSameText(tokenizer.decode(ids[index]!), decoded[index]!)),
    skipped: wrong((_, index) => isSameText(tokenizer.decode(ids[index]!, { skipSpecialTokens: true }), skipped[index]!)),
    tokens: tokens.ids.filter((id, index) => !isSameText(tokenizer.decode([id]), tokens.decoded[index]!)).map(String),
  };
}

const folder = expectedFolder();

describe.skipIf(folder === undefined)("a real tokenizer", () => {
  const files = folder === undefined ? [] : readdirSync(folder).filter((file) => file.endsWith(".json"));
  test.each(files)("of %s gives the ids and texts of the reference", { timeout: 600_000 }, async (file) => {
    const expected = JSON.parse(readFileSync(join(folder ?? "", file), "utf8")) as Expected;
    expect(expected.texts.length).toBeGreaterThanOrEqual(5000);
    const none = { ids: [], withSpecial: [], decoded: [], skipped: [], tokens: [] };
    expect(differences(await loadTokenizer(expected.directory), expected)).toEqual(none);
  });
});
