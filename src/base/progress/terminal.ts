/** Block of progress lines at the bottom of a terminal. `task.ts` adds a source of lines for each task. */

import { clearScreenDown, cursorTo, moveCursor } from "node:readline";
import type { Writable } from "node:stream";
import { encodeLine, standardStreams } from "../util/output.ts";
import { getOrInsert } from "../util/values.ts";
import { terminalColumns, fitted } from "./format.ts";
import { hookWrites } from "./hook-writes.ts";

/** Milliseconds from a change to its drawing; further changes meanwhile are drawn together. */
const DRAW_DELAY_MS = 80;
/** Interval in milliseconds at which elapsed and remaining times are drawn again. */
const TICK_MS = 1_000;

/** Size of a terminal, as `tty.WriteStream` reports it. */
interface Terminal extends Writable {
  readonly columns?: number;
  readonly rows?: number;
}

/** Function that returns the present lines of one task. */
export type BlockSource = () => readonly string[];

/**
 * Block of lines at the bottom of a terminal, shared by every task that reports to the same stream. Other text that the process writes to
 * the terminal appears above the block.
 *
 * The block is erased and drawn with relative cursor movements only. The cursor stays visible and rests on the line below the block, so
 * that nothing has to be restored when the process ends during a task.
 */
export class TerminalBlock {
  static readonly #byStream = new WeakMap<Writable, TerminalBlock>();

  readonly #stream: Terminal;
  readonly #sources = new Set<BlockSource>();
  /** Lines on the screen. */
  #drawnLines: readonly string[] = [];
  /** Whether the block itself writes, so that the hooks ignore the write. */
  #isWriting = false;
  /** Whether the text above the block ends within a line, so that the block cannot be drawn below it. */
  #isLineOpen = false;
  /** Timer of the next drawing; null if none is due. */
  #drawTimer: NodeJS.Timeout | null = null;
  /** Timer of the regular drawings; null while the block has no source. */
  #tickTimer: NodeJS.Timeout | null = null;
  /** Functions that end the hooks on the streams. */
  #unhooks: (() => void)[] = [];

  private constructor(stream: Writable) {
    this.#stream = stream;
  }

  /** Returns the block of a stream. */
  static of(stream: Writable): TerminalBlock {
    return getOrInsert(TerminalBlock.#byStream, stream, () => new TerminalBlock(stream));
  }

  /** Adds the lines of a task to the block. */
  add(source: BlockSource): void {
    if (this.#sources.size === 0) this.#open();
    this.#sources.add(source);
    this.refresh();
  }

  /** Removes the lines of a task from the block and prints its last lines above the block. */
  remove(source: BlockSource, lines: readonly string[]): void {
    if (!this.#sources.delete(source)) return;
    this.print(lines);
    if (this.#sources.size === 0) this.#close();
  }

  /** Draws the block soon. */
  refresh(): void {
    this.#drawTimer ??= setTimeout(() => this.#draw(), DRAW_DELAY_MS).unref();
  }

  /** Prints lines above the block, unshortened. */
  print(lines: readonly string[]): void {
    this.#writeTogether(() => {
      this.#erase();
      if (this.#isLineOpen) this.#stream.write("\n");
      this.#isLineOpen = false;
      for (const line of lines) this.#stream.write(`${encodeLine(line)}\n`);
    });
    this.#draw();
  }

  /** Starts the hooks and regular drawings, with the first source. */
  #open(): void {
    const { stdout, stderr } = standardStreams();
    const streams = this.#stream === stderr && stdout.isTTY ? [stderr, stdout] : [this.#stream];
    const before = () => {
      if (!this.#isWriting) this.#writeTogether(() => this.#erase());
    };
    const after = (endsLine: boolean) => {
      if (this.#isWriting) return;
      this.#isLineOpen = !endsLine;
      this.refresh();
    };
    this.#unhooks = streams.map((stream) => hookWrites(stream, { before, after }));
    this.#tickTimer = setInterval(() => this.refresh(), TICK_MS).unref();
  }

  /** Ends the hooks and drawings, after the last source. */
  #close(): void {
    for (const unhook of this.#unhooks) unhook();
    this.#unhooks = [];
    if (this.#tickTimer !== null) clearInterval(this.#tickTimer);
    if (this.#drawTimer !== null) clearTimeout(this.#drawTimer);
    this.#tickTimer = null;
    this.#drawTimer = null;
  }

  /** Draws the present lines now, unless other text above the block ends within a line. */
  #draw(): void {
    if (this.#drawTimer !== null) clearTimeout(this.#drawTimer);
    this.#drawTimer = null;
    if (this.#isLineOpen) return;
    const { columns = 80, rows = 24 } = this.#stream;
    const lines = [...this.#sources].flatMap((source) => source());
    // The last column stays free: some terminals wrap a line that fills it.
    const fitting = lines.slice(0, Math.max(1, rows - 1)).map((line) => fitted(line, Math.max(1, columns - 1)));
    this.#writeTogether(() => {
      this.#erase();
      this.#stream.write(fitting.map((line) => `${line}\n`).join(""));
      this.#drawnLines = fitting;
    });
  }

  /** Erases the drawn lines, which take more rows than lines if the terminal became narrower since. */
  #erase(): void {
    if (this.#drawnLines.length === 0) return;
    const { columns = 80 } = this.#stream;
    const rows = this.#drawnLines.reduce((sum, line) => sum + Math.max(1, Math.ceil(terminalColumns(line) / columns)), 0);
    moveCursor(this.#stream, 0, -rows);
    cursorTo(this.#stream, 0);
    clearScreenDown(this.#stream);
    this.#drawnLines = [];
  }

  /** Runs writes of the block itself, which the hooks ignore, and sends them to the terminal together. */
  #writeTogether(write: () => void): void {
    this.#isWriting = true;
    this.#stream.cork();
    try {
      write();
    } finally {
      this.#stream.uncork();
      this.#isWriting = false;
    }
  }
}
