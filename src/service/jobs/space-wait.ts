/** Wait of the job queue for disk space, which a request to cancel or pause a job ends early. */
import type { DiskSpace } from "../disk/space.ts";

/** Wait for disk space. At most one caller waits at a time. */
export class SpaceWait {
  readonly #space: Pick<DiskSpace, "waitForSpace">;
  /** Ends the current wait; null while there is none. */
  #controller: AbortController | null = null;
  #isClosed = false;

  constructor(space: Pick<DiskSpace, "waitForSpace">) {
    this.#space = space;
  }

  /** Whether {@link close} was called. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * Waits for disk space, or until {@link end} or {@link close} is called. Never rejects.
   *
   * @param failures - Number of shortages in a row; the wait grows with them.
   */
  async wait(failures: number): Promise<void> {
    if (this.#isClosed) return;
    this.#controller = new AbortController();
    await this.#space.waitForSpace({ failures, signal: this.#controller.signal });
    this.#controller = null;
  }

  /** Ends the current wait, if there is one. */
  end(): void {
    this.#controller?.abort();
  }

  /** Ends the current wait, and all later ones. */
  close(): void {
    this.#isClosed = true;
    this.end();
  }
}
