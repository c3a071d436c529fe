/** A grammar as an automaton over bytes with a stack: states that rules share, and calls from one to the other. */
import { checkGrammar } from "../../../grammar/check.ts";
import type { Expression, Grammar } from "../../../grammar/expression.ts";
import type { GrammarFacts } from "../../../grammar/facts.ts";
import { runSteps, type Steps } from "../../../../util/steps.ts";
import { utf8Ranges, type ByteRange } from "./utf8-ranges.ts";

/** One byte and what comes after it. */
export interface ByteEdge {
  readonly first: number;
  readonly last: number;
  readonly target: number;
}

/** A state; numbers are places among {@link Automaton.states}. */
export type State =
  | { readonly kind: "bytes"; readonly edges: readonly ByteEdge[] }
  | { readonly kind: "either"; readonly targets: readonly number[] }
  /** Matches from `start` to an end, then goes on at `next`. */
  | { readonly kind: "call"; readonly start: number; readonly next: number }
  /** Matches from `body` to an end, `min` to `max` times, then goes on at `next`. */
  | { readonly kind: "loop"; readonly body: number; readonly min: number; readonly max: number; readonly next: number }
  /** The end of whatever was entered last. */
  | { readonly kind: "end" };

/** See the file header. */
export interface Automaton {
  readonly states: readonly State[];
  readonly start: number;
}

/** Where texts of a list stand alike: the byte that led there, and how they go on. */
interface Branch {
  readonly byte: number;
  readonly edges: ByteEdge[];
  isEnd: boolean;
}

const END = 0;
const DEAD = 1;

class Compiler {
  readonly states: State[] = [{ kind: "end" }, { kind: "bytes", edges: [] }];
  readonly #facts: GrammarFacts;
  readonly #starts: readonly number[];
  readonly #bytes = new Map<string, number>();

  constructor(grammar: Grammar, facts: GrammarFacts) {
    this.#facts = facts;
    // Each rule has its first state from the beginning, so that rules can call those that come later.
    this.#starts = grammar.rules.map(() => this.#add({ kind: "either", targets: [] }));
  }

  /** Compiles the rules one by one. */
  *rules({ rules }: Grammar): Steps<Automaton> {
    for (const [index, rule] of rules.entries()) {
      this.states[this.#starts[index]!] = { kind: "either", targets: [this.#compile(rule, END)] };
      yield;
    }
    return { states: this.states, start: this.#starts[0]! };
  }

  #add(state: State): number {
    return this.states.push(state) - 1;
  }

  /** A state for these edges, the same for the same ones. */
  #shared(edges: readonly ByteEdge[]): number {
    const key = edges.map(({ first, last, target }) => `${first}-${last}>${target}`).join();
    const known = this.#bytes.get(key);
    if (known !== undefined) return known;
    const made = this.#add({ kind: "bytes", edges });
    this.#bytes.set(key, made);
    return made;
  }

  /** The state from which `expression` is matched and then what `next` matches. */
  #compile(expression: Expression, next: number): number {
    if (!this.#facts.isProductive(expression)) return DEAD;
    switch (expression.kind) {
      case "text":
        return this.#text(Buffer.from(expression.text), next);
      case "set":
        return this.#set(utf8Ranges(expression.ranges), next);
      case "sequence":
        return expression.parts.reduceRight((target, part) => this.#compile(part, target), next);
      case "choice":
        return this.#choice(expression.options, next);
      case "repeat":
        return this.#repeat(expression, next);
      case "rule":
        // A call at the end of a rule returns to where the rule returns to: recursion at the end takes no stack.
        return next === END ? this.#starts[expression.index]! : this.#add({ kind: "call", start: this.#starts[expression.index]!, next });
    }
  }

  #text(bytes: Buffer, next: number): number {
    return bytes.reduceRight((target, byte) => this.#shared([{ first: byte, last: byte, target }]), next);
  }

  /** Texts among the options share how they begin: a list of thousands is one state at a time. */
  #choice(options: readonly Expression[], next: number): number {
    const texts = options.flatMap((option) => (option.kind === "text" ? [Buffer.from(option.text)] : []));
    const others = options.filter((option) => option.kind !== "text").map((option) => this.#compile(option, next));
    const targets = [...(texts.length > 0 ? [this.#texts(texts, next)] : []), ...others.filter((target) => target !== DEAD)];
    return targets.length === 1 ? targets[0]! : this.#add({ kind: "either", targets });
  }

  #texts(texts: readonly Buffer[], next: number): number {
    const start: Branch = { byte: 0, edges: [], isEnd: false };
    /** The way of the text before, from the start to its end. */
    const path = [start];
    const leave = (depth: number): void => {
      while (path.length > depth + 1) {
        const branch = path.pop()!;
        path.at(-1)!.edges.push({ first: branch.byte, last: branch.byte, target: this.#branch(branch, next) });
      }
    };
    let before: Uint8Array = new Uint8Array(0);
    // In order, whatever a text does not share with the one before is complete once that is passed.
    for (const each of [...texts].sort((a, b) => Buffer.compare(a, b))) {
      let shared = 0;
      while (shared < before.length && before[shared] === each[shared]) shared++;
      leave(shared);
      for (const byte of each.subarray(shared)) path.push({ byte, edges: [], isEnd: false });
      path.at(-1)!.isEnd = true;
      before = each;
    }
    leave(0);
    return this.#branch(start, next);
  }

  #branch({ edges, isEnd }: Branch, next: number): number {
    if (edges.length === 0) return next;
    const longer = this.#shared(edges);
    return isEnd ? this.#add({ kind: "either", targets: [longer, next] }) : longer;
  }

  #set(sequences: readonly (readonly ByteRange[])[], next: number): number {
    return this.#shared(
      sequences.map(([[first, last] = [1, 0], ...rest]) => ({
        first,
        last,
        target: rest.reduceRight((target, [low, high]) => this.#shared([{ first: low, last: high, target }]), next),
      })),
    );
  }

  #repeat(expression: Extract<Expression, { kind: "repeat" }>, next: number): number {
    const { body, min, max } = expression;
    if (!this.#facts.isProductive(body) || max === 0) return next;
    if (!this.#facts.isWrittenOut(expression))
      return this.#add({ kind: "loop", body: this.#compile(body, END), min, max: max ?? Infinity, next });
    let target = next;
    if (max === null) {
      const again = this.#add({ kind: "either", targets: [] });
      target = again;
      this.states[again] = { kind: "either", targets: [this.#compile(body, again), next] };
    } else for (let count = min; count < max; count++) target = this.#add({ kind: "either", targets: [this.#compile(body, target), next] });
    for (let count = 0; count < min; count++) target = this.#compile(body, target);
    return target;
  }
}

/**
 * Compiles a grammar.
 *
 * @throws ArgumentError `E_ARGUMENT` where the grammar cannot be carried out.
 */
export function compileGrammar(grammar: Grammar): Automaton {
  return runSteps(compileGrammarSteps(grammar));
}

/** {@link compileGrammar}, one rule at a time, for a thread that samples meanwhile. */
export function* compileGrammarSteps(grammar: Grammar): Steps<Automaton> {
  const facts = checkGrammar(grammar);
  yield;
  return yield* new Compiler(grammar, facts).rules(grammar);
}
