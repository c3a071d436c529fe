/** Grammar compiled to an automaton over bytes with a stack: rules share states and call one another. */
import { checkGrammar } from "../check.ts";
import type { CodePointRange, Expression, Grammar } from "../expression.ts";
import type { GrammarFacts } from "../facts.ts";
import { runSteps, type Steps } from "../../../base/util/steps.ts";
import { utf8Ranges, type ByteRange } from "./utf8-ranges.ts";
import { getOrInsert, itemAt, zip } from "../../../base/util/values.ts";

/** Transition to `target` on any byte from `first` to `last`, both included. */
export interface ByteEdge {
  readonly first: number;
  readonly last: number;
  readonly target: number;
}

/** State of the automaton. Numbers of states are indices into {@link Automaton.states}. */
export type AutomatonState =
  | { readonly kind: "bytes"; readonly edges: readonly ByteEdge[] }
  | { readonly kind: "either"; readonly targets: readonly number[] }
  /** Matches from `start` to an end, then continues at `next`. */
  | { readonly kind: "call"; readonly start: number; readonly next: number }
  /** Matches from `body` to an end, `min` to `max` times, then continues at `next`. */
  | { readonly kind: "loop"; readonly body: number; readonly min: number; readonly max: number; readonly next: number }
  /** End of the innermost call or loop body; outside of both, the end of the text. */
  | { readonly kind: "end" };

/** Compiled grammar. */
export interface Automaton {
  readonly states: readonly AutomatonState[];
  readonly start: number;
}

/** Node in the trie of a list of texts. */
interface TrieNode {
  readonly parent: TrieNode | null;
  /** Number of bytes from the root. */
  readonly depth: number;
  /** Byte that leads to the node; 0 for the root. */
  readonly byte: number;
  /** Edges to the children that are complete. */
  readonly edges: ByteEdge[];
  /** Whether a text of the list ends here. */
  isEnd: boolean;
}

/** State at the end of a rule, loop body or text. */
const END = 0;
/** State that no text passes. */
const DEAD = 1;

/** Range of bytes without a byte. */
const EMPTY_RANGE: ByteRange = [1, 0];

/** Returns equal keys for equal edges. Most states have one edge, whose key is a number: texts of a grammar have a state for each byte. */
function keyOf(edges: readonly ByteEdge[]): number | string {
  const [edge] = edges;
  if (edge !== undefined && edges.length === 1) return (edge.target * 256 + edge.first) * 256 + edge.last;
  return edges.map(({ first, last, target }) => `${first}-${last}>${target}`).join();
}

/** Compiler of one grammar. Expressions are compiled from their end to their beginning: each receives the state that follows it. */
class Compiler {
  /** States so far, beginning with {@link END} and {@link DEAD}. */
  readonly states: AutomatonState[] = [{ kind: "end" }, { kind: "bytes", edges: [] }];
  readonly #facts: GrammarFacts;
  /** First state of each rule. */
  readonly #starts: readonly number[];
  /** States by their edges; see {@link keyOf}. */
  readonly #byteStates = new Map<number | string, number>();
  // A grammar has few sets of code points, which it repeats.
  /** Keys of sets, by the array of their ranges. */
  readonly #rangesKeys = new Map<readonly CodePointRange[], string>();
  /** Encodings of sets by their ranges. */
  readonly #encodings = new Map<string, readonly (readonly ByteRange[])[]>();
  /** States of sets by their ranges and next state. */
  readonly #setStates = new Map<string, number>();

  constructor(grammar: Grammar, facts: GrammarFacts) {
    this.#facts = facts;
    // Each rule's first state is reserved at the start, so that rules can call later rules.
    this.#starts = grammar.rules.map(() => this.#add({ kind: "either", targets: [] }));
  }

  /** Compiles the rules one by one. */
  *rules({ rules }: Grammar): Steps<Automaton> {
    for (const [rule, start] of zip(rules, this.#starts)) {
      this.states[start] = { kind: "either", targets: [this.#compile(rule, END)] };
      yield;
    }
    return { states: this.states, start: itemAt(this.#starts, 0) };
  }

  #add(state: AutomatonState): number {
    return this.states.push(state) - 1;
  }

  /** Returns a state with these edges; equal edges share one state. */
  #shared(edges: readonly ByteEdge[]): number {
    return getOrInsert(this.#byteStates, keyOf(edges), () => this.#add({ kind: "bytes", edges }));
  }

  /** Returns the state that matches `expression` and then continues at `next`. */
  #compile(expression: Expression, next: number): number {
    if (!this.#facts.isProductive(expression)) return DEAD;
    switch (expression.kind) {
      case "text":
        return this.#text(Buffer.from(expression.text), next);
      case "set":
        return this.#set(expression.ranges, next);
      case "sequence":
        return expression.parts.reduceRight((target, part) => this.#compile(part, target), next);
      case "choice":
        return this.#choice(expression.options, next);
      case "repeat":
        return this.#repeat(expression, next);
      case "rule": {
        const start = itemAt(this.#starts, expression.index);
        // Tail call: the called rule returns to the caller of this rule, so tail recursion takes no stack.
        return next === END ? start : this.#add({ kind: "call", start, next });
      }
    }
  }

  /** Compiles a text to one state for each byte. */
  #text(bytes: Buffer, next: number): number {
    return bytes.reduceRight((target, byte) => this.#shared([{ first: byte, last: byte, target }]), next);
  }

  /** Compiles a choice. Texts among the options are merged into a trie: matching a list of thousands takes one state at a time. */
  #choice(options: readonly Expression[], next: number): number {
    const texts = options.flatMap((option) => (option.kind === "text" ? [Buffer.from(option.text)] : []));
    const others = options.filter((option) => option.kind !== "text").map((option) => this.#compile(option, next));
    const targets = others.filter((target) => target !== DEAD);
    if (texts.length > 0) targets.unshift(this.#texts(texts, next));
    return targets.length === 1 ? itemAt(targets, 0) : this.#add({ kind: "either", targets });
  }

  /** Compiles a choice of texts to the states of their trie. */
  #texts(texts: readonly Buffer[], next: number): number {
    /** Node of the end of the previous text. */
    let node: TrieNode = { parent: null, depth: 0, byte: 0, edges: [], isEnd: false };
    const completeDownTo = (depth: number): void => {
      while (node.parent !== null && node.depth > depth) {
        node.parent.edges.push({ first: node.byte, last: node.byte, target: this.#trieState(node, next) });
        node = node.parent;
      }
    };
    let previous: Uint8Array = new Uint8Array(0);
    // Texts are sorted, so nodes of the previous text that the next text does not share are complete.
    for (const text of [...texts].sort((a, b) => Buffer.compare(a, b))) {
      let shared = 0;
      while (shared < previous.length && previous[shared] === text[shared]) shared++;
      completeDownTo(shared);
      for (const byte of text.subarray(shared)) node = { parent: node, depth: node.depth + 1, byte, edges: [], isEnd: false };
      node.isEnd = true;
      previous = text;
    }
    completeDownTo(0);
    return this.#trieState(node, next);
  }

  /** Returns the state of a complete node of a trie, whose texts continue at `next`. */
  #trieState({ edges, isEnd }: TrieNode, next: number): number {
    if (edges.length === 0) return next;
    const longer = this.#shared(edges);
    return isEnd ? this.#add({ kind: "either", targets: [longer, next] }) : longer;
  }

  /** Compiles a set of code points to the states of its UTF-8 encodings. */
  #set(ranges: readonly CodePointRange[], next: number): number {
    const rangesKey = getOrInsert(this.#rangesKeys, ranges, () => ranges.join());
    return getOrInsert(this.#setStates, `${rangesKey}>${next}`, () => {
      const encodings = getOrInsert(this.#encodings, rangesKey, () => utf8Ranges(ranges));
      const edges = encodings.map(([lead = EMPTY_RANGE, ...tail]): ByteEdge => {
        const target = tail.reduceRight((following, [first, last]) => this.#shared([{ first, last, target: following }]), next);
        return { first: lead[0], last: lead[1], target };
      });
      return this.#shared(edges);
    });
  }

  /** Compiles a repetition: to a loop with a counter, or to copies of the body. */
  #repeat(expression: Extract<Expression, { kind: "repeat" }>, next: number): number {
    const { body, min, max } = expression;
    if (!this.#facts.isProductive(body) || max === 0) return next;
    if (!this.#facts.isUnrolled(expression))
      return this.#add({ kind: "loop", body: this.#compile(body, END), min, max: max ?? Infinity, next });
    let target = next;
    if (max === null) {
      // A cycle: after the body, the state is reached again.
      const cycle = this.#add({ kind: "either", targets: [] });
      this.states[cycle] = { kind: "either", targets: [this.#compile(body, cycle), next] };
      target = cycle;
    } else for (let count = min; count < max; count++) target = this.#add({ kind: "either", targets: [this.#compile(body, target), next] });
    for (let count = 0; count < min; count++) target = this.#compile(body, target);
    return target;
  }
}

/**
 * Compiles a grammar.
 *
 * @throws ArgumentError `E_ARGUMENT` if the grammar is unsupported: no text matches it, it is left-recursive, too large or nested too
 *   deeply, or it contains half a surrogate pair.
 */
export function compileGrammar(grammar: Grammar): Automaton {
  return runSteps(compileGrammarSteps(grammar));
}

/** Compiles a grammar one rule at a time, for a thread that samples meanwhile. See {@link compileGrammar}. */
export function* compileGrammarSteps(grammar: Grammar): Steps<Automaton> {
  const facts = checkGrammar(grammar);
  yield;
  return yield* new Compiler(grammar, facts).rules(grammar);
}
