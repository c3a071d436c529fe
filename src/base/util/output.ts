/** Text output of programs: the only module that writes to standard output and standard error, so that all text is escaped. */

/**
 * Characters that end a line, control a terminal or reorder displayed text: C0 and C1 controls, DEL, line and paragraph separators,
 * bidirectional controls, zero-width characters, and lone surrogates.
 */
// oxlint-disable-next-line no-control-regex
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\p{Surrogate}/gu;

/**
 * Replaces unsafe characters by their JSON escapes, such as `\u000a`, so that text from a client cannot forge a line. JSON text remains
 * equivalent JSON.
 */
export function encodeLine(text: string): string {
  return text.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Streams of the process that may lead to a terminal. */
export function standardStreams(): { readonly stdout: NodeJS.WriteStream; readonly stderr: NodeJS.WriteStream } {
  return { stdout: process.stdout, stderr: process.stderr };
}

/** Writes one line to standard error. */
export function logLine(text: string): void {
  process.stderr.write(`${encodeLine(text)}\n`);
}

/**
 * Writes a multi-line text, such as a stack trace, to standard error. Every line after the first is indented, so that it cannot be mistaken
 * for a separate log line.
 */
export function logLines(text: string): void {
  process.stderr.write(`${text.split("\n").map(encodeLine).join("\n  ")}\n`);
}

/** Writes one line to standard output. */
export function printLine(text: string): void {
  process.stdout.write(`${encodeLine(text)}\n`);
}

/** Writes text to standard output without ending the line, such as a piece of a streamed answer. Line breaks and tabs are kept. */
export function printText(text: string): void {
  process.stdout.write(
    text
      .split(/([\n\t])/u)
      .map((part) => (/^[\n\t]$/u.test(part) ? part : encodeLine(part)))
      .join(""),
  );
}

/** Calls `action` when the reader of standard output has closed it, as `head` does after its last line. */
export function onClosedOutput(action: () => void): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    action();
  });
}

/** Whether a user can answer a question: standard input and standard error are terminals. */
export function isInteractive(): boolean {
  return process.stdin.isTTY && process.stderr.isTTY;
}

/**
 * Returns the width of the terminal in columns; infinity if standard output is not a terminal, so that files and pipes get whole lines.
 */
export function terminalWidth(): number {
  return process.stdout.isTTY ? process.stdout.columns || 80 : Number.POSITIVE_INFINITY;
}
