/** Live progress on a terminal: one rewritten line, or plain lines without a terminal. */
import { styleText } from "node:util";

export interface Progress {
  /** Replaces the live line. Without a terminal, prints the text only if `isMilestone`. */
  readonly update: (text: string, isMilestone?: boolean) => void;
  /** Prints a permanent line above the live line. */
  readonly line: (text: string) => void;
}

/** Creates a progress display on standard error, so that standard output contains only results. */
export function createProgress(stream: NodeJS.WriteStream = process.stderr): Progress {
  const isLive = stream.isTTY === true;
  let isDirty = false;
  const clear = () => {
    if (isDirty) stream.write("\r\x1b[2K");
    isDirty = false;
  };
  return {
    update(text, isMilestone = false) {
      if (!isLive) {
        if (isMilestone) stream.write(`${text}\n`);
        return;
      }
      clear();
      stream.write(text.slice(0, Math.max(20, (stream.columns ?? 80) - 1)));
      isDirty = true;
    },
    line(text) {
      clear();
      stream.write(`${text}\n`);
    },
  };
}

/** Returns a progress bar `████░░░░` of the given width. */
export function bar(fraction: number, width = 24): string {
  const full = Math.round(Math.min(1, Math.max(0, fraction)) * width);
  return "█".repeat(full) + "░".repeat(width - full);
}

/** Returns text in a style if the terminal supports styles. */
export function styled(style: "bold" | "dim" | "green" | "cyan", text: string, stream: NodeJS.WriteStream = process.stderr): string {
  return stream.isTTY === true && process.env["NO_COLOR"] === undefined ? styleText(style, text) : text;
}
