import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { duration } from "../../src/base/progress/index.ts";
import { startProgress, type ProgressView } from "../../src/base/progress/task.ts";
import { Lines, Screen } from "./screen.ts";

const DRAW_MS = 100;

/** View with a settable block; its plain line is the block's first line. */
function view(...lines: string[]): ProgressView & { lines: string[] } {
  const made = { lines, block: () => made.lines, line: () => made.lines[0] ?? "" };
  return made;
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

describe("the display on a terminal", () => {
  it("replaces the block with each change and leaves only the last line at the end", () => {
    const screen = new Screen();
    const state = view("train 0 %", "  0 rollouts");
    const task = startProgress(screen, state);
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("train 0 %\n  0 rollouts");
    state.lines = ["train 50 %"];
    task.refresh();
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("train 50 %");
    task.end("train: completed");
    task.end("train: completed again");
    expect(screen.text).toBe("train: completed");
  });

  it("draws the blocks of several tasks below each other, and the rest when one ends", () => {
    const screen = new Screen();
    const [first, second] = [startProgress(screen, view("first")), startProgress(screen, view("second", "  of two lines"))];
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("first\nsecond\n  of two lines");
    first.end("first: completed");
    expect(screen.text).toBe("first: completed\nsecond\n  of two lines");
    second.end("second: completed");
    expect(screen.text).toBe("first: completed\nsecond: completed");
  });

  it("keeps other text above the block, also a line that is written in parts", () => {
    const screen = new Screen();
    const task = startProgress(screen, view("block"));
    vi.advanceTimersByTime(DRAW_MS);
    screen.write("one\n");
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("one\nblock");
    screen.write("two, ");
    vi.advanceTimersByTime(10 * DRAW_MS);
    screen.write("in parts\n");
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("one\ntwo, in parts\nblock");
    screen.write("three");
    task.print("warning");
    expect(screen.text).toBe("one\ntwo, in parts\nthree\nwarning\nblock");
    task.end("completed");
    screen.write("after");
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("one\ntwo, in parts\nthree\nwarning\ncompleted\nafter");
  });

  it("cuts lines to the width of the terminal and escapes control characters", () => {
    const screen = new Screen(20);
    const task = startProgress(screen, view("a line that is longer than the terminal", "日本語日本語日本語日本語", "\u001b[31mred"));
    vi.advanceTimersByTime(DRAW_MS);
    expect(screen.text).toBe("a line that is lon…\n日本語日本語日本語…\n\\u001b[31mred");
    task.end("completed");
    expect(screen.text).toBe("completed");
  });

  it("leaves the cursor visible and the stream as it was", () => {
    const screen = new Screen();
    const written = vi.spyOn(screen, "_write");
    const before = screen.write;
    const task = startProgress(screen, view("block"));
    expect(screen.write).not.toBe(before);
    vi.advanceTimersByTime(DRAW_MS);
    task.end("completed");
    expect(screen.write).toBe(before);
    expect(written.mock.calls.map(([chunk]) => String(chunk)).join("")).not.toContain("\u001b[?25l");
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("the display without a terminal", () => {
  it("prints a line every 30 seconds, and the last line", () => {
    const lines = new Lines();
    const state = view("state 1");
    const task = startProgress(lines, state);
    expect(lines.text).toBe("");
    vi.advanceTimersByTime(30_000);
    state.lines = ["state 2"];
    task.refresh();
    task.print("a warning\nof two lines");
    vi.advanceTimersByTime(30_000);
    task.end("completed");
    expect(lines.text).toBe("state 1\na warning\\u000aof two lines\nstate 2\ncompleted\n");
    expect(vi.getTimerCount()).toBe(0);
  });

  it("prints lines on a terminal, too, with WHETSTONE_PROGRESS=plain", () => {
    vi.stubEnv("WHETSTONE_PROGRESS", "plain");
    const screen = new Screen();
    startProgress(screen, view("block")).end("completed");
    expect(screen.text).toBe("completed");
    expect(startProgress(screen, view("block")).isTerminal).toBe(false);
  });
});

describe("the option", () => {
  it.each([
    [undefined, "0", false],
    [false, "1", false],
    [true, "0", true],
    [undefined, "1", true],
  ] as const)("%s with WHETSTONE_PROGRESS=%s", (option, variable, isShown) => {
    vi.stubEnv("WHETSTONE_PROGRESS", variable);
    const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    startProgress(option, view("block")).end("completed");
    const shown = write.mock.calls.map(([text]) => String(text)).join("");
    write.mockRestore();
    expect(shown.includes("completed\n")).toBe(isShown);
  });

  it("must be a boolean or a stream, and the variable one of three values", () => {
    expect(() => startProgress("yes" as never, view())).toThrow(/Expected `progress` to be true, false or a stream/);
    vi.stubEnv("WHETSTONE_PROGRESS", "fancy");
    expect(() => startProgress(undefined, view())).toThrow(/Expected WHETSTONE_PROGRESS to be 0 .* got "fancy"/);
  });
});

it.each([
  [0, "0 s"],
  [59.6, "1 min"],
  [185, "3 min 5 s"],
  [7_800, "2 h 10 min"],
  [100_800, "1 d 4 h"],
])("formats %d seconds as %s", (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});
