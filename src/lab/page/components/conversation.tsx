/** Conversation of a trajectory: messages, and sampled turns token by token. */
import type { DetailData, ItemData } from "../../report/page-data.ts";
import type { Coloring } from "./coloring.ts";
import { count, prettyJson, signed } from "./format.ts";
import { TokenBlock } from "./tokens.tsx";

/** Hint below the first block of tokens. */
const HINT = "Point at a token, or focus the text and use the arrow keys.";

/** Properties of {@link Conversation}. */
export interface ConversationProps {
  readonly detail: DetailData;
  /** Advantage of the trajectory within its group. */
  readonly advantage: number;
  readonly coloring: Coloring;
  /** Whether to report missing log-probabilities of the trainer; evaluations have none. */
  readonly isTraining: boolean;
}

/** Messages and sampled turns of a trajectory in order, then its additional histories. */
export function Conversation({ detail, advantage, coloring, isTraining }: ConversationProps) {
  const [main = [], ...additional] = detail.histories;
  // The first block has the hint; all blocks work alike.
  const firstSampled = detail.histories.flat().find(({ sampled }) => sampled !== null && sampled.texts.length > 0);
  const turns = (items: readonly ItemData[]) => (
    <Turns items={items} advantage={advantage} coloring={coloring} firstSampled={firstSampled} />
  );
  return (
    <div class="conversation">
      {turns(main)}
      {isTraining && <TrainedAbsent detail={detail} />}
      {additional.map((items, index) => (
        <details key={index} class="history" open={additional.length === 1}>
          <summary>{`Additional history ${index + 1}: ${count(items.length, "message")}`}</summary>
          {turns(items)}
        </details>
      ))}
    </div>
  );
}

/** Note if the trainer's log-probabilities of some turns are missing. */
function TrainedAbsent({ detail: { histories } }: { readonly detail: DetailData }) {
  const turns = histories.flat().flatMap((item) => item.sampled ?? []);
  const missing = turns.filter(({ trained }) => trained === null).length;
  if (missing === 0) return null;
  const subject = missing === turns.length ? "this trajectory" : `${missing} of its ${turns.length} turns`;
  return (
    <p class="hint trained-absent">
      {`The trainer's log-probabilities of ${subject} were not kept, so sampled and trained cannot be compared.`}
    </p>
  );
}

/** Properties of {@link Turns}. */
interface TurnsProps {
  readonly items: readonly ItemData[];
  readonly advantage: number;
  readonly coloring: Coloring;
  /** Turn that shows the hint; undefined if no turn has tokens. */
  readonly firstSampled: ItemData | undefined;
}

/** Messages and sampled turns of one history. A tool message is named after the call that it answers. */
function Turns({ items, advantage, coloring, firstSampled }: TurnsProps) {
  if (items.length === 0) return <p class="empty">No message.</p>;
  const toolNames = new Map(items.flatMap((item) => item.calls.map((call) => [call.id, call.name] as const)));
  return (
    <ol class="turns">
      {items.map((item, index) => (
        <li key={index} class={`turn ${item.sampled ? "choice" : "context"}`} data-role={item.role}>
          <Speaker item={item} name={item.name ?? (item.callId === null ? undefined : toolNames.get(item.callId))} />
          <div class="said">
            <Said item={item} advantage={advantage} coloring={coloring} hint={item === firstSampled ? HINT : null} />
            {item.calls.map((call, at) => (
              <ToolCallView key={at} call={call} />
            ))}
          </div>
        </li>
      ))}
    </ol>
  );
}

/** Role, name of the speaker or of the tool, and facts of a sampled turn. */
function Speaker({ item: { role, sampled }, name }: { readonly item: ItemData; readonly name: string | undefined }) {
  const facts = sampled && [
    count(sampled.texts.length, "token"),
    sampled.promptTokens !== null && `after ${count(sampled.promptTokens, "prompt token")}`,
    sampled.finish && `ended by ${sampled.finish}`,
    sampled.policy !== null && `checkpoint ${sampled.policy}`,
    sampled.advantage !== null && `trainer's advantage ${signed(sampled.advantage)}`,
  ];
  return (
    <div class="who">
      <b>{role}</b>
      {name && <span>{name}</span>}
      {sampled && <span class="badge">sampled</span>}
      {facts && <small>{facts.filter(Boolean).join(" · ")}</small>}
    </div>
  );
}

/** Properties of {@link Said}. */
interface SaidProps {
  readonly item: ItemData;
  readonly advantage: number;
  readonly coloring: Coloring;
  readonly hint: string | null;
}

/** Text of a message, or tokens of a sampled turn. */
function Said({ item: { role, text, reasoning, calls, sampled }, advantage, coloring, hint }: SaidProps) {
  const notes = sampled?.notes.map((note) => (
    <p key={note} class="hint">
      {note}
    </p>
  ));
  if (sampled !== null && sampled.texts.length > 0) {
    return (
      <>
        <TokenBlock turn={{ sampled, advantage }} coloring={coloring} hint={hint} />
        {notes}
      </>
    );
  }
  const isTool = role === "tool";
  return (
    <>
      {reasoning && <blockquote class="reasoning">{reasoning}</blockquote>}
      {text !== "" && <div class={isTool ? "text code" : "text"}>{isTool ? prettyJson(text) : text}</div>}
      {text === "" && calls.length === 0 && <p class="hint">No text.</p>}
      {notes}
    </>
  );
}

/** Tool call with its arguments. */
export function ToolCallView({ call: { id, name, args } }: { readonly call: ItemData["calls"][number] }) {
  return (
    <div class="call">
      <div class="call-name">
        <span>calls</span>
        <b>{name}</b>
        {id && <small>{id}</small>}
      </div>
      {args !== "" && <pre>{prettyJson(args)}</pre>}
    </div>
  );
}
