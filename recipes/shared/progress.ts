/** Live progress on a terminal: one line that is rewritten, or plain lines where there is none. */
import { styleText } from "node:util";

export interface Progress {
  /** Replaces the live line. Without a terminal, prints only when `isMilestone`. */
  readonly update: (text: string, isMilestone?: boolean) => void;
  /** Prints a lasting line above the live one. */
  readonly line: (text: string) => void;
}

/** Writes to standard error, so that standard output carries results alone. */
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

/** `████░░░░` of the given width. */
export function bar(fraction: number, width = 24): string {
  const full = Math.round(Math.min(1, Math.max(0, fraction)) * width);
  return "█".repeat(full) + "░".repeat(width - full);
}

/** Text in a style, where the terminal shows styles. */
export function styled(style: "bold" | "dim" | "green" | "cyan", text: string, stream: NodeJS.WriteStream = process.stderr): string {
  return stream.isTTY === true && process.env["NO_COLOR"] === undefined ? styleText(style, text) : text;
}
