/**
 * Runs the tutorial on a real model as its reader would, with the GGUF file of `WHETSTONE_REAL_MODEL`:
 *
 *   WHETSTONE_REAL_MODEL=<directory> npx vitest run --mode real test/real/whole-way.test.ts
 */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { read } from "../project/files.ts";
import { buildPackage, createProject, isShown, pageBlocks, type Project } from "../support/page.ts";

const MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf";
const TIMEOUT_MS = 1_800_000;
const { WHETSTONE_REAL_MODEL: models } = process.env;

describe.skipIf(models === undefined)("the tutorial on a real model", () => {
  let built: Awaited<ReturnType<typeof buildPackage>>;
  let project: Project;
  beforeAll(async () => {
    built = await buildPackage();
    project = await createProject(built.directory, { files: [join(models!, MODEL)], timeoutMs: TIMEOUT_MS });
  }, TIMEOUT_MS);
  afterAll(async () => {
    await project.remove();
    await built.remove();
  });

  const blocks = pageBlocks(read("docs/tutorials/05-train-a-real-model.md")).filter(
    ({ file, commands, excluded }) => file !== null || (commands.length > 0 && excluded?.startsWith("needs a model file") === true),
  );
  it.each(blocks.map((block) => [`line ${block.line}: ${block.commands.join("; ") || block.file}`, block] as const))(
    "%s",
    async (_, block) => {
      const printed = await project.run(block);
      if (!isShown(printed, block.shown)) expect(printed.trim()).toBe(block.shown.trim());
    },
    TIMEOUT_MS,
  );
});
