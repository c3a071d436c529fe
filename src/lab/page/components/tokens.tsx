/** Sampled tokens of a turn, colored, with the facts of the picked token. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { advantageOf, type Coloring, difference, type Turn } from "./coloring.ts";
import { decimal, probability, signed } from "./format.ts";

/** Number of tokens by which a key moves; an infinite one moves to the first or last token. */
const KEY_MOVES: Readonly<Record<string, number>> = {
  ArrowRight: 1,
  ArrowLeft: -1,
  ArrowDown: 10,
  ArrowUp: -10,
  Home: -Infinity,
  End: Infinity,
};

/** Properties of {@link TokenBlock}. */
export interface TokenBlockProps {
  readonly turn: Turn;
  readonly coloring: Coloring;
  /** Text below the tokens while none is picked. */
  readonly hint: string | null;
  /** Returns more about the token of an index, shown below its facts while it is picked. */
  readonly details?: (index: number) => ComponentChildren;
}

/**
 * Tokens of a turn as one focusable block: arrow keys move from token to token, a pointer picks a token, Escape releases it, and the line
 * below shows the facts of the picked token.
 */
export function TokenBlock({ turn, coloring, hint, details }: TokenBlockProps) {
  /** Index of the picked token; -1 for none. */
  const [picked, setPicked] = useState(-1);
  const block = useRef<HTMLDivElement>(null);
  const { texts } = turn.sampled;
  // The spans do not depend on the picked token, so that a pointer that crosses a long turn renders none of them again.
  const spans = useMemo(
    () => texts.map((text, index) => <Token key={index} index={index} text={text} turn={turn} coloring={coloring} />),
    [turn, coloring],
  );
  useLayoutEffect(() => {
    const span = block.current?.children[picked];
    span?.classList.add("picked");
    return () => span?.classList.remove("picked");
  }, [picked, spans]);
  const pick = (index: number) => setPicked(Math.max(0, Math.min(texts.length - 1, index)));
  const pickTarget = ({ target }: Event) => {
    const index = target instanceof HTMLElement ? target.dataset["at"] : undefined;
    if (index !== undefined) pick(Number(index));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = KEY_MOVES[event.key];
    if (event.key === "Escape") setPicked(-1);
    if (move === undefined) return;
    event.preventDefault();
    // Without a picked token, every key but End starts at the first one.
    const start = move === Infinity ? texts.length - 1 : 0;
    pick(picked < 0 ? start : picked + move);
  };
  return (
    <div class="sampled">
      <div
        ref={block}
        class="tokens"
        tabIndex={0}
        role="group"
        aria-label={`${texts.length} sampled tokens; arrow keys read them`}
        onPointerOver={pickTarget}
        onClick={pickTarget}
        onKeyDown={onKeyDown}
      >
        {spans}
      </div>
      <p class="token-readout" aria-live="polite">
        {picked < 0 ? hint : <TokenFacts turn={turn} index={picked} />}
      </p>
      {picked >= 0 && details?.(picked)}
    </div>
  );
}

/** Properties of {@link Token}. */
interface TokenProps {
  readonly index: number;
  readonly text: string;
  readonly turn: Turn;
  readonly coloring: Coloring;
}

/** Token with its color. */
function Token({ index, text, turn, coloring }: TokenProps) {
  const value = coloring.scale(turn, index);
  const strength = value === null ? "0" : Math.abs(value).toFixed(3);
  return (
    <span class="token" data-at={index} data-kind={colorKind(value, coloring)} style={{ "--strength": strength }}>
      {visible(text)}
    </span>
  );
}

/** Returns the hue of a token in the style sheet. @param value - Color of the token, from −1 to 1, or null. */
function colorKind(value: number | null, { kind }: Coloring): "none" | "warm" | "down" | "up" {
  if (value === null) return "none";
  if (kind === "sequential") return "warm";
  return value < 0 ? "down" : "up";
}

/** Facts of a token in the line below its turn. */
function TokenFacts({ turn, index }: { readonly turn: Turn; readonly index: number }) {
  const { sampled } = turn;
  const advantage = advantageOf(turn, index);
  const logprob = sampled.logprobs?.[index];
  const trained = sampled.trained?.[index] ?? null;
  const gap = difference(sampled, index);
  return (
    <>
      <Fact name={`token ${index + 1} of ${sampled.texts.length}`}>
        <code>{JSON.stringify(sampled.texts[index])}</code>
      </Fact>
      {sampled.ids && <Fact name="id">{sampled.ids[index]}</Fact>}
      {logprob !== undefined && <Fact name="sampled">{`${decimal(logprob)} (${probability(logprob)})`}</Fact>}
      {advantage !== null && <Fact name="trained">{trained === null ? "not kept" : decimal(trained)}</Fact>}
      {gap !== null && <Fact name="difference">{`${gap < 0 ? "" : "+"}${decimal(gap)}`}</Fact>}
      {gap !== null && <Fact name="ratio">{Math.exp(gap).toFixed(4)}</Fact>}
      {advantage !== null && <Fact name="advantage">{signed(advantage)}</Fact>}
    </>
  );
}

/** A fact with its name. */
function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <span>
      <small>{name}</small> {children}
    </span>
  );
}

/** Marks line ends and tabs with a symbol, so that they can be seen and pointed at; a line end still ends the line. */
function visible(text: string): string {
  return text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}
