/** Positions of trackers in the events of a run, stored in the run directory. */
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ConfigError } from "../base/errors.ts";
import { trackerFile } from "./files.ts";

/** Progress of the deliveries to a tracker, the content of `trackers/<name>.json`. */
export interface TrackerPosition {
  /** `seq` of the last confirmed event; -1 before the first. */
  readonly position: number;
  /** State that the tracker stored with the position; null before the first event. */
  readonly state: unknown;
}

/** Reads a tracker's position. @throws ConfigError `E_CONFIG` if the file was changed from outside. */
export async function readTrackerPosition(runDir: string, name: string): Promise<TrackerPosition> {
  const path = join(runDir, trackerFile(name));
  const text = await readFile(path, "utf8").catch(() => null);
  if (text === null) return { position: -1, state: null };
  try {
    const { position, state } = JSON.parse(text) as TrackerPosition;
    if (Number.isInteger(position)) return { position, state };
  } catch {
    // Reported below.
  }
  throw new ConfigError(`Expected the position of a tracker in ${path}; delete the file to send all events of the run again`, {
    param: "trackers",
  });
}

/** Replaces the file of a tracker's position atomically. */
export async function writeTrackerPosition(runDir: string, name: string, { position, state }: TrackerPosition): Promise<void> {
  const path = join(runDir, trackerFile(name));
  await mkdir(dirname(path), { recursive: true });
  await writeFile(`${path}.tmp`, `${JSON.stringify({ position, state })}\n`);
  await rename(`${path}.tmp`, path);
}
