import { Writable } from "node:stream";

/** Stream that behaves like a terminal: interprets line breaks and the cursor movements of `node:readline`. */
export class Screen extends Writable {
  readonly isTTY = true;
  columns: number;
  rows = 24;
  readonly #lines: string[] = [""];
  #row = 0;
  #column = 0;

  constructor(columns = 80) {
    super({ decodeStrings: false });
    this.columns = columns;
  }

  /** Lines on the screen and above it, without trailing spaces and empty lines at the end. */
  get text(): string {
    return this.#lines
      .map((line) => line.trimEnd())
      .join("\n")
      .trimEnd();
  }

  override _write(chunk: string | Buffer, _encoding: string, done: () => void): void {
    // oxlint-disable-next-line no-control-regex
    for (const [part, count, command] of String(chunk).matchAll(/\u001b\[(\d*)([AGJ])|\n|[^\n\u001b]+/gu)) {
      if (part === "\n") this.#breakLine();
      else if (command === "A") this.#row = Math.max(0, this.#row - Number(count));
      else if (command === "G") this.#column = Number(count) - 1;
      else if (command === "J") this.#clearDown();
      else for (const character of part) this.#put(character);
    }
    done();
  }

  #put(character: string): void {
    if (this.#column === this.columns) this.#breakLine();
    const line = (this.#lines[this.#row] ?? "").padEnd(this.#column);
    this.#lines[this.#row] = line.slice(0, this.#column) + character + line.slice(this.#column + 1);
    this.#column++;
  }

  #breakLine(): void {
    this.#row++;
    this.#column = 0;
    this.#lines[this.#row] ??= "";
  }

  #clearDown(): void {
    this.#lines.length = this.#row + 1;
    this.#lines[this.#row] = (this.#lines[this.#row] ?? "").slice(0, this.#column);
  }
}

/** Stream that keeps the written text and is not a terminal. */
export class Lines extends Writable {
  text = "";

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += String(chunk);
    done();
  }
}
