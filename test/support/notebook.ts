/**
 * Runs the code cells of a notebook with a TypeScript kernel as one program, outside of Jupyter: `console.log` becomes an output of its cell, and
 * so does the value of an expression at the end of a cell, by the rules of Deno's kernel.
 *
 *   npm run build && node --import tsx test/support/notebook.ts <notebook> [working directory]
 *
 * writes the outputs into the notebook.
 */
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import ts from "typescript";

/** Output of a cell in nbformat 4, as Deno's kernel writes it. */
export type Output =
  | { readonly output_type: "stream"; readonly name: "stdout"; readonly text: string[] }
  | {
      readonly output_type: "execute_result";
      readonly execution_count: number;
      readonly data: Readonly<Record<string, string | string[]>>;
      readonly metadata: object;
    };

/** Cell of a notebook in nbformat 4. */
export interface NotebookCell {
  readonly id: string;
  readonly cell_type: "code" | "markdown";
  readonly source: string[];
  readonly metadata: object;
  execution_count?: number | null;
  outputs?: Output[];
}

/** Notebook in nbformat 4. */
export interface Notebook {
  readonly nbformat: 4;
  readonly nbformat_minor: number;
  readonly metadata: { readonly kernelspec: { readonly name: string; readonly language: string } };
  readonly cells: NotebookCell[];
}

/** Splits a text into the lines of nbformat, which keep their line ends. */
const linesOf = (text: string) => text.match(/[^\n]*\n|[^\n]+/gu) ?? [];

const PRELUDE = `
import { formatWithOptions as __format, inspect as __inspect } from "node:util";
const __cells: object[][] = [];
const __add = (output: object) => void __cells.at(-1)?.push(output);
console.log = (...values: unknown[]) => __add({ output_type: "stream", text: __format({}, ...values) + "\\n" });
const __show = (value: any) => {
  if (value === undefined) return;
  __add({ output_type: "execute_result", data: value?.[Symbol.for("Jupyter.display")]?.() ?? { "text/plain": __inspect(value) } });
};
`;

/** Wraps the expression at the end of a cell so that its value is an output. */
function withShownValue(code: string): string {
  const source = ts.createSourceFile("cell.ts", code, ts.ScriptTarget.Latest, true);
  const last = source.statements.at(-1);
  if (last === undefined || !ts.isExpressionStatement(last)) return code;
  return `${code.slice(0, last.getStart(source))}__show(${last.expression.getText(source)});`;
}

interface RawOutput {
  readonly output_type: "stream" | "execute_result";
  readonly text?: string;
  readonly data?: Readonly<Record<string, string>>;
}

/** Joins the texts of a cell's stream, and numbers its value, as a kernel does. */
function outputsOf(raw: readonly RawOutput[], count: number): Output[] {
  const text = raw.map((each) => each.text ?? "").join("");
  const stream: Output[] = text === "" ? [] : [{ output_type: "stream", name: "stdout", text: linesOf(text) }];
  const results = raw.flatMap(({ data }): Output[] => {
    if (data === undefined) return [];
    const lines = Object.fromEntries(Object.entries(data).map(([type, content]) => [type, linesOf(content)]));
    return [{ output_type: "execute_result", execution_count: count, data: lines, metadata: {} }];
  });
  return [...stream, ...results];
}

/** Reads a notebook. */
export async function readNotebook(path: string): Promise<Notebook> {
  return JSON.parse(await readFile(path, "utf8")) as Notebook;
}

/** Runs the code cells and returns the outputs of each. The program lies next to the notebook, so that imports resolve as in the kernel. */
export async function runNotebook(
  path: string,
  { cwd, timeoutMs }: { readonly cwd: string; readonly timeoutMs: number },
): Promise<Output[][]> {
  const codes = (await readNotebook(path)).cells.filter((cell) => cell.cell_type === "code").map(({ source }) => source.join(""));
  const program = [
    PRELUDE,
    ...codes.map((code) => `__cells.push([]);\n${withShownValue(code)}\n`),
    "process.stdout.write(JSON.stringify(__cells));\nexport {};\n",
  ].join("\n");
  const file = join(path, "..", `.notebook-${process.pid}.ts`);
  await writeFile(file, program);
  try {
    const root = resolve(import.meta.dirname, "../..");
    const { stdout } = await promisify(execFile)(process.execPath, ["--import", import.meta.resolve("tsx"), file], {
      cwd,
      timeout: timeoutMs,
      maxBuffer: 2 ** 26,
      env: { ...process.env, TSX_TSCONFIG_PATH: join(root, "tsconfig.json") },
    });
    return (JSON.parse(stdout) as RawOutput[][]).map((raw, index) => outputsOf(raw, index + 1));
  } finally {
    await rm(file);
  }
}

async function main(path: string, cwd: string): Promise<void> {
  const outputs = await runNotebook(resolve(path), { cwd, timeoutMs: 300_000 });
  const notebook = await readNotebook(path);
  notebook.cells
    .filter((cell) => cell.cell_type === "code")
    .forEach((cell, index) => {
      cell.execution_count = index + 1;
      cell.outputs = outputs[index] as Output[];
    });
  await writeFile(path, `${JSON.stringify(notebook, null, 1)}\n`);
}

if (process.argv[1] === import.meta.filename) await main(process.argv[2] ?? "", process.argv[3] ?? ".");
