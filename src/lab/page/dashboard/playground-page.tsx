/** Page of a conversation with a model. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RequestMessage, ServedModelList } from "../../../base/schema/index.ts";
import { submitting } from "../components/controls.tsx";
import { type Answer, EMPTY_ANSWER, answerMessage, streamAnswer } from "./chat.ts";
import { AnswerView } from "./playground-answer.tsx";
import { DEFAULT_SETTINGS, playgroundRequest, type PlaygroundSettings, SettingsForm } from "./playground-settings.tsx";
import { useResource } from "./requests.ts";
import type { PageRoute } from "./router.ts";
import { Problem } from "./status.tsx";

/** Turn of the conversation: a message of the user, or an answer of the model. */
type Turn = { readonly message: RequestMessage; readonly answer: null } | { readonly message: null; readonly answer: Answer };

/** Conversation with a model: sampling settings, streamed answers, alternatives per token. */
export function PlaygroundPage({ route }: { readonly route: PageRoute }) {
  const models = useResource<ServedModelList>("/v1/models");
  const [settings, setSettings] = useState<PlaygroundSettings>(() => ({ ...DEFAULT_SETTINGS, model: route.query.get("model") ?? "" }));
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [error, setError] = useState<Error | null>(null);
  /** Controller of the answer that streams; null while none does. */
  const [abort, setAbort] = useState<AbortController | null>(null);
  /** Text for screen readers. */
  const [status, setStatus] = useState("");
  const names = models.value?.data.map(({ id }) => id) ?? [];
  const model = settings.model === "" ? (names.at(-1) ?? "") : settings.model;
  const last = turns.at(-1);
  // The user answers the tool calls of the last answer one after the other; `pendingCall` is the first call without a result.
  const answered = new Set(turns.map(({ message }) => message?.tool_call_id));
  const lastCalls = turns.findLast(({ answer }) => answer !== null)?.answer?.calls ?? [];
  const pendingCall = last === undefined ? undefined : lastCalls.find(({ id }) => id !== null && !answered.has(id));

  useEffect(() => () => abort?.abort(), [abort]);

  /** Streams an answer to the turns `before`. */
  const sample = async (before: readonly Turn[]) => {
    const controller = new AbortController();
    setAbort(controller);
    setError(null);
    setStatus("The answer streams.");
    setTurns([...before, { message: null, answer: EMPTY_ANSWER }]);
    try {
      const messages = before.map(({ message, answer }) => message ?? answerMessage(answer));
      const request = playgroundRequest({ ...settings, model }, messages);
      await streamAnswer(request, {
        signal: controller.signal,
        onAnswer: (answer) => setTurns([...before, { message: null, answer }]),
      });
      setStatus("The answer is complete.");
    } catch (failure) {
      const isStopped = controller.signal.aborted;
      setStatus(isStopped ? "The answer was stopped." : "The answer failed.");
      if (!isStopped) {
        setError(failure as Error);
        setTurns(before);
      }
    } finally {
      setAbort(null);
    }
  };
  /** Sends a user message, or the result of the pending tool call. Samples once no call is pending. */
  const sendMessage = (text: string) => {
    const message =
      pendingCall === undefined ? { role: "user", content: text } : { role: "tool", content: text, tool_call_id: pendingCall.id ?? "" };
    const next: readonly Turn[] = [...turns, { message: message as RequestMessage, answer: null }];
    const isWaiting = pendingCall !== undefined && lastCalls.some(({ id }) => id !== pendingCall.id && !answered.has(id ?? undefined));
    if (isWaiting) setTurns(next);
    else void sample(next);
  };
  return (
    <section aria-labelledby="playground-title">
      <div class="bar">
        <h1 id="playground-title">Playground</h1>
        <div class="controls">
          {last?.answer && abort === null && (
            <button type="button" class="button" onClick={() => void sample(turns.slice(0, -1))}>
              Sample again
            </button>
          )}
          {turns.length > 0 && abort === null && (
            <button type="button" class="button" onClick={() => setTurns([])}>
              Clear
            </button>
          )}
        </div>
      </div>
      {models.error && <Problem error={models.error} />}
      <div class="playground">
        <SettingsForm names={names} settings={{ ...settings, model }} onChange={setSettings} />
        <div class="chat">
          {turns.length === 0 && (
            <p class="empty">
              Write a message. Each token of the answer shows its log-probability as color; point at a token, or focus the answer and use
              the arrow keys, to see the alternatives.
            </p>
          )}
          <ol class="turns">
            {turns.map(({ message, answer }, at) =>
              answer === null ? (
                <li key={at} class="turn context">
                  <div class="who">
                    <b>{message.role}</b>
                  </div>
                  <div class="said">
                    <div class={message.role === "tool" ? "text code" : "text"}>{String(message.content)}</div>
                  </div>
                </li>
              ) : (
                <AnswerView key={at} answer={answer} isStreaming={abort !== null && at === turns.length - 1} />
              ),
            )}
          </ol>
          {error && <Problem error={error} />}
          <Composer
            label={pendingCall === undefined ? "Message" : `Result of ${pendingCall.name}`}
            isBusy={abort !== null}
            isDisabled={model === ""}
            onSend={sendMessage}
            onStop={() => abort?.abort()}
          />
          <p class="hidden" role="status">
            {status}
          </p>
        </div>
      </div>
    </section>
  );
}

/** Properties of {@link Composer}. */
interface ComposerProps {
  readonly label: string;
  readonly isBusy: boolean;
  readonly isDisabled: boolean;
  readonly onSend: (text: string) => void;
  readonly onStop: () => void;
}

/** Field for the next message. Enter sends, Shift+Enter starts a line, Escape stops the answer. */
function Composer({ label, isBusy, isDisabled, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const submit = () => {
    if (text.trim() === "" || isBusy || isDisabled) return;
    onSend(text);
    setText("");
    field.current?.focus();
  };
  return (
    <form
      class="composer"
      onSubmit={submitting(submit)}
      onKeyDown={(event) => {
        if (event.key === "Escape" && isBusy) onStop();
      }}
    >
      <textarea
        ref={field}
        aria-label={label}
        placeholder={label}
        rows={3}
        value={text}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          submit();
        }}
      />
      {isBusy ? (
        <button type="button" class="button" onClick={onStop}>
          Stop
        </button>
      ) : (
        <button type="submit" class="button primary" disabled={isDisabled || text.trim() === ""}>
          Send
        </button>
      )}
    </form>
  );
}
