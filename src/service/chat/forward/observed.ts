/** Observation of forwarded chat completions: token counts and finish reasons, read from the answer of the upstream. */
import { getOrInsert, isRecord, parseJson } from "../../../base/util/values.ts";
import type { Members } from "../../../dialects/index.ts";
import type { ChatObserver } from "../../observability/observer.ts";

/** Token counts of an answer. */
interface Usage {
  readonly promptTokens: number;
  readonly generatedTokens: number;
}

/** Choice of an answer, as received so far. */
interface SeenChoice {
  /** Finish reason; `unknown` before the end. */
  finishReason: string;
  /** Number of events with a part of the text. */
  events: number;
  text: string;
}

/** Returns a numeric member of an object; 0 for anything else. */
function numberIn(value: unknown, name: string): number {
  const number = isRecord(value) ? value[name] : undefined;
  return typeof number === "number" ? number : 0;
}

function usageOf(value: unknown): Usage | null {
  if (!isRecord(value)) return null;
  return { promptTokens: numberIn(value, "prompt_tokens"), generatedTokens: numberIn(value, "completion_tokens") };
}

/** Observation of one answer: reads it whole (`take`) or event by event (`takeEvent`), and reports it to the observer at its end. */
export class ForwardedObservation {
  readonly #observer: ChatObserver;
  readonly #base: string;
  readonly #model: string;
  readonly #choices = new Map<number, SeenChoice>();
  #usage: Usage | null = null;
  #responseId = "";

  constructor(observer: ChatObserver, { base, model }: { readonly base: string; readonly model: string }) {
    this.#observer = observer;
    this.#base = base;
    this.#model = model;
  }

  /** Reads a whole answer. */
  take(answer: Members): void {
    this.#takeChoices(answer, "message");
  }

  /** Reads an event of a stream. Returns true for the last event, which has only token counts. */
  takeEvent(json: string): boolean {
    const event = parseJson(json);
    if (!isRecord(event)) return false;
    this.#takeChoices(event, "delta");
    return Array.isArray(event["choices"]) && event["choices"].length === 0 && isRecord(event["usage"]);
  }

  /**
   * Reports the choices and the end. The upstream counts the tokens of all choices together, so that each choice gets an equal part, and the
   * first one the remainder. If the upstream sent no token counts, each event of a choice counts as one token.
   */
  end(error: unknown): void {
    let eventCount = 0;
    for (const choice of this.#choices.values()) eventCount += choice.events;
    const { promptTokens, generatedTokens } = this.#usage ?? { promptTokens: 0, generatedTokens: eventCount };
    this.#observer.admitted({ base: this.#base, model: this.#model, responseId: this.#responseId, promptTokens, sampling: null, stop: [] });
    const choiceCount = this.#choices.size;
    const equalPart = Math.floor(generatedTokens / Math.max(1, choiceCount));
    const remainder = generatedTokens - equalPart * choiceCount;
    let isFirst = true;
    for (const [index, { finishReason, text }] of this.#choices) {
      const tokens = isFirst ? equalPart + remainder : equalPart;
      this.#observer.choiceFinished({ index, finishReason, tokens, cachedTokens: 0, text });
      isFirst = false;
    }
    this.#observer.ended(error);
  }

  /** Reads identifier, token counts and choices. `part` is the member of a choice that has its text. */
  #takeChoices(answer: Members, part: "message" | "delta"): void {
    if (typeof answer["id"] === "string") this.#responseId = answer["id"];
    this.#usage = usageOf(answer["usage"]) ?? this.#usage;
    const choices: readonly unknown[] = Array.isArray(answer["choices"]) ? answer["choices"] : [];
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      const seen = getOrInsert(this.#choices, numberIn(choice, "index"), () => ({ finishReason: "unknown", events: 0, text: "" }));
      if (typeof choice["finish_reason"] === "string") seen.finishReason = choice["finish_reason"];
      const content = isRecord(choice[part]) ? choice[part]["content"] : undefined;
      if (typeof content !== "string" || content === "") continue;
      seen.events++;
      seen.text += content;
    }
  }
}
