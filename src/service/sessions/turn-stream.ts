/** Stream of a turn: passes the events on as they arrive, and holds back the end until the turn is recorded. */
import { createParser, type EventSourceParser } from "eventsource-parser";
import type { ChatCompletion, ChatCompletionChunk } from "../../schema/index.ts";
import type { ErrorBody } from "../../schema/error.ts";
import { CompletionAssembler } from "../../trajectory/assemble.ts";
import { chunkWithoutUnasked } from "./answers.ts";
import type { Asked } from "./effective-request.ts";

/** Options of {@link TurnStream}. */
export interface TurnStreamOptions {
  readonly asked: Asked;
  /** Records the completion of a whole stream. A rejection becomes the error event of the stream. */
  readonly onCompletion: (completion: ChatCompletion) => Promise<void>;
  /** Called with the error event of a failed stream; returns the event to send. */
  readonly onFailure: (event: ErrorBody) => ErrorBody;
  /** Returns the error event of a failure. */
  readonly explain: (error: unknown) => ErrorBody;
  /** Called when the client disconnects; the source is read to its end. */
  readonly onDisconnect: () => void;
}

const DONE = "data: [DONE]\n\n";
const encoder = new TextEncoder();

/**
 * Reader of a stream of chunks that writes to the client's stream.
 *
 * The source is read at the pace of the client until {@link drain}. Memory is one completion, and the events that the client has not read.
 */
export class TurnStream {
  readonly readable: ReadableStream<Uint8Array>;
  readonly #options: TurnStreamOptions;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #assembler = new CompletionAssembler();
  readonly #decoder = new TextDecoder();
  readonly #parser: EventSourceParser;
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  /** Events to send now, and events that follow the record. */
  #events = "";
  #held = "";
  #hasFailed = false;
  #isEnded = false;
  #step: Promise<void> = Promise.resolve();
  #isDraining = false;

  constructor(source: ReadableStream<Uint8Array>, options: TurnStreamOptions) {
    this.#options = options;
    this.#reader = source.getReader();
    this.#parser = createParser({ onEvent: ({ data }) => this.#take(data) });
    this.readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => this.#untilSent(),
        cancel: () => {
          this.#controller = null;
          options.onDisconnect();
          this.drain();
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** Reads the source to its end, whether or not the client reads. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    void (async () => {
      while (!this.#isEnded) await this.#read();
    })();
  }

  /** Reads until an event was sent or the stream has ended. */
  async #untilSent(): Promise<void> {
    while (!this.#isEnded && !(await this.#read())) continue;
  }

  /** Reads one part of the source after the previous one. Returns whether events were sent. */
  #read(): Promise<boolean> {
    const result = this.#step.then(() => this.#readPart());
    this.#step = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  }

  async #readPart(): Promise<boolean> {
    if (this.#isEnded) return false;
    try {
      const { done, value } = await this.#reader.read();
      if (done) await this.#end();
      else this.#parser.feed(this.#decoder.decode(value, { stream: true }));
    } catch (error) {
      this.#fail(this.#options.explain(error));
      this.#isEnded = true;
    }
    const events = this.#events;
    this.#events = "";
    if (events !== "") this.#controller?.enqueue(encoder.encode(events));
    if (this.#isEnded) this.#controller?.close();
    return events !== "";
  }

  #take(data: string): void {
    if (data === "[DONE]") {
      if (!this.#hasFailed) this.#held += DONE;
      return;
    }
    const payload = JSON.parse(data) as ChatCompletionChunk | ErrorBody;
    if ("error" in payload) {
      this.#fail(payload as ErrorBody);
      return;
    }
    this.#assembler.push(payload as ChatCompletionChunk);
    const chunk = chunkWithoutUnasked(payload as ChatCompletionChunk, this.#options.asked);
    const event = chunk === null ? "" : `data: ${JSON.stringify(chunk)}\n\n`;
    if (this.#assembler.isComplete(this.#options.asked.n)) this.#held += event;
    else this.#events += event;
  }

  #fail(event: ErrorBody): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#held = DONE;
    this.#events += `data: ${JSON.stringify(this.#options.onFailure(event))}\n\n`;
  }

  async #end(): Promise<void> {
    const completion = this.#hasFailed ? null : this.#assembler.toCompletion();
    try {
      if (completion !== null) await this.#options.onCompletion(completion);
    } catch (error) {
      this.#fail(this.#options.explain(error));
    }
    this.#events += this.#held;
    this.#isEnded = true;
  }
}
