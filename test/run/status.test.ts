import { describe, expect, it } from "vitest";
import { eventFromDisk, eventToDisk, type RecordedEvent } from "../../src/run/events.ts";
import { eventLine, numberedEventLine } from "../../src/run/rows.ts";
import { endOf, endText, runStatusOf } from "../../src/run/status.ts";

const time = "2026-11-26T00:00:00.000Z";

/** Lines of `events.jsonl` as the reader of summaries sees them. */
function linesOf(...events: RecordedEvent[]) {
  return events.map((event) => eventLine.parse(JSON.parse(JSON.stringify(eventToDisk(event)))));
}

const start: RecordedEvent = { seq: 0, time, type: "run-start", kind: "rl", modelId: "m", checkpointStep: 0, steps: 2 };
const failed: RecordedEvent = { seq: 1, time, type: "run-fail", code: "E_DATA", message: "failed: twice" };
const resumed: RecordedEvent = { seq: 2, time, type: "run-resume", step: 0, checkpointStep: 0, steps: 2 };
const ended: RecordedEvent = { seq: 3, time, type: "run-end", reason: "early-stop", steps: 1, checkpointStep: 1 };

describe("the status of a run", () => {
  it("is the last recorded end; its message may have any text", () => {
    expect(endOf(linesOf(start))).toBeNull();
    expect(endOf(linesOf(start, failed))).toEqual({ kind: "failed", message: "failed: twice" });
    expect(endOf(linesOf(start, failed, resumed))).toBeNull();
    expect(endOf(linesOf(start, failed, resumed, ended))).toEqual({ kind: "ended", reason: "early-stop" });
  });

  it("distinguishes a running, an interrupted and an unknown run without an end", () => {
    expect(runStatusOf(null, { isLocked: true, hasEvents: true })).toEqual({ kind: "running" });
    expect(runStatusOf(null, { isLocked: false, hasEvents: true })).toEqual({ kind: "interrupted" });
    expect(runStatusOf(null, { isLocked: false, hasEvents: false })).toEqual({ kind: "unknown" });
    const end = { kind: "ended", reason: "completed" } as const;
    expect(runStatusOf(end, { isLocked: true, hasEvents: true })).toEqual({ kind: "running" });
    expect(runStatusOf(end, { isLocked: false, hasEvents: true })).toEqual(end);
  });

  it("has a text for people", () => {
    expect([endText(null), endText({ kind: "ended", reason: "stopped" }), endText({ kind: "failed", message: "no data" })]).toEqual([
      null,
      "stopped",
      "failed: no data",
    ]);
  });
});

describe("an event on disk", () => {
  it.each([start, failed, resumed, ended])("is read back unchanged: $type", (event) => {
    expect(eventFromDisk(numberedEventLine.parse(JSON.parse(JSON.stringify(eventToDisk(event)))))).toEqual(event);
  });

  it("without `seq` is not an event from which a run resumes", () => {
    expect(numberedEventLine.safeParse({ type: "run-end" }).error?.issues[0]?.path).toEqual(["seq"]);
  });
});
