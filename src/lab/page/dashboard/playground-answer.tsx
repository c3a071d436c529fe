/** Answer of a model in the playground, with the alternatives of the picked token. */
import { useMemo } from "preact/hooks";
import type { LogprobEntry } from "../../../base/schema/index.ts";
import type { SampledData } from "../../report/page-data.ts";
import { tokenTexts } from "../../report/tokens.ts";
import { COLORINGS } from "../components/coloring.ts";
import { ToolCallView } from "../components/conversation.tsx";
import { count, decimal, number, probability } from "../components/format.ts";
import { TokenBlock } from "../components/tokens.tsx";
import { breakable, ShareBar } from "../components/controls.tsx";
import type { Answer } from "./chat.ts";

/** Answer of a model, token by token. */
export function AnswerView({ answer, isStreaming }: { readonly answer: Answer; readonly isStreaming: boolean }) {
  const { entries, reasoning, text, calls, finish, model } = answer;
  const turn = useMemo(() => ({ sampled: sampledOf(answer), advantage: null }), [entries]);
  const perplexity = Math.exp(-entries.reduce((sum, { logprob }) => sum + logprob, 0) / Math.max(1, entries.length));
  const facts = [count(entries.length, "token"), finish && `ended by ${finish}`, entries.length > 0 && `perplexity ${number(perplexity)}`];
  return (
    <li class="turn choice" data-role="assistant" aria-busy={isStreaming}>
      <div class="who">
        <b>assistant</b>
        {model && <span>{breakable(model)}</span>}
        <small>{isStreaming ? "streaming …" : facts.filter(Boolean).join(" · ")}</small>
      </div>
      <div class="said">
        {entries.length > 0 ? (
          <TokenBlock
            turn={turn}
            coloring={COLORINGS[0]}
            hint={null}
            details={(at) => entries[at] && <Alternatives entry={entries[at]} />}
          />
        ) : (
          <>
            {reasoning !== "" && <blockquote class="reasoning">{reasoning}</blockquote>}
            <div class="text">{text}</div>
          </>
        )}
        {calls.map((call, at) => (
          <ToolCallView key={at} call={call} />
        ))}
      </div>
    </li>
  );
}

/** Returns the sampled tokens of an answer in the form of a stored turn. */
function sampledOf({ entries, finish }: Answer): SampledData {
  return {
    texts: tokenTexts(entries),
    ids: null,
    logprobs: entries.map(({ logprob }) => logprob),
    trained: null,
    advantage: null,
    advantages: null,
    promptTokens: null,
    finish,
    policy: null,
    notes: [],
  };
}

/** Most probable tokens at the position of a sampled token. */
function Alternatives({ entry }: { readonly entry: LogprobEntry }) {
  const sorted = entry.top_logprobs.toSorted((a, b) => b.logprob - a.logprob);
  if (sorted.length === 0) return <p class="hint">No alternatives were requested.</p>;
  return (
    <table class="alternatives">
      <caption class="hidden">Alternatives to the token</caption>
      <tbody>
        {sorted.map(({ token, logprob }, at) => (
          <tr key={at} class={token === entry.token ? "chosen" : undefined}>
            <th scope="row">
              <code>{JSON.stringify(token)}</code>
              {token === entry.token && <small> sampled</small>}
            </th>
            <td>
              <ShareBar share={Math.exp(logprob)} />
            </td>
            <td class="num">{probability(logprob)}</td>
            <td class="num">{decimal(logprob, 3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
