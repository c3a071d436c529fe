/** The cost of a tokenizer's regular expressions, which JavaScript matches by backtracking. */
import { RegExpParser, type AST } from "@eslint-community/regexpp";
import { UnsupportedError } from "../../base/errors.ts";

/** Longest expression, in UTF-16 units. */
const MAX_LENGTH = 4096;
/** Repetitions up to this many multiply the ways of a match; more count as unbounded. */
const MAX_REPEATS = 64;
/** Ways in which the bounded parts of one alternative may match. */
const MAX_WAYS = 4096;

const parser = new RegExpParser({ ecmaVersion: 2025 });

/** Cost of a part of an expression. */
interface Cost {
  /** Unbounded repetitions on the way through it. */
  readonly unbounded: number;
  /** Unbounded repetitions before the last place at which it can fail: each multiplies the work of a start by the text's length. */
  readonly retried: number;
  /** Ways in which its bounded parts can match. */
  readonly ways: number;
  readonly canFail: boolean;
}

const NOTHING: Cost = { unbounded: 0, retried: 0, ways: 1, canFail: false };
const CHARACTER: Cost = { ...NOTHING, canFail: true };

/**
 * Refuses an expression that may take more than the square of a text's length. From each start of a match at most one unbounded
 * repetition may be retried, which the expressions of all supported model families satisfy: `\s+(?!\S)`, `\s*[\r\n]+`. Refused are
 * repeated groups with choices or repetitions inside (`(a+)+`), two unbounded repetitions before another part that can fail
 * (`a*a*b`), references to groups, and expressions that do not parse.
 *
 * @param where - Names the expression in the message.
 * @throws UnsupportedError `E_UNSUPPORTED`.
 */
export function requireBoundedRegex(source: string, where: string): void {
  const refuse = (why: string): never => {
    throw new UnsupportedError(
      `${where}: the regular expression ${JSON.stringify(source.slice(0, 100))} ${why}, so matching it may never end`,
    );
  };
  if (source.length > MAX_LENGTH) refuse(`has ${source.length} characters, at most ${MAX_LENGTH} are read`);
  const pattern = parse(source);
  if (pattern === null) return refuse("does not parse");
  const { retried, ways } = choiceCost(pattern.alternatives, refuse);
  if (retried > 1) refuse("retries several unbounded repetitions");
  if (ways > MAX_WAYS) refuse(`can match in more than ${MAX_WAYS} ways`);
}

function parse(source: string): AST.Pattern | null {
  // Escapes of Oniguruma, such as `\h`, are plain characters without the flag `u`; the structure is the same.
  for (const unicode of [true, false]) {
    try {
      return parser.parsePattern(source, 0, source.length, { unicode });
    } catch {
      continue;
    }
  }
  return null;
}

type Refuse = (why: string) => never;

function choiceCost(alternatives: readonly AST.Alternative[], refuse: Refuse): Cost {
  const costs = alternatives.map(({ elements }) => sequenceCost(elements, refuse));
  return {
    unbounded: Math.max(...costs.map(({ unbounded }) => unbounded)),
    retried: Math.max(...costs.map(({ retried }) => retried)),
    ways: costs.reduce((sum, { ways }) => sum + ways, 0),
    canFail: true,
  };
}

function sequenceCost(elements: readonly AST.Element[], refuse: Refuse): Cost {
  let { unbounded, retried, ways } = NOTHING;
  for (const element of elements) {
    const cost = elementCost(element, refuse);
    // An optional group cannot fail, but its inside can, and is then retried before the group is skipped.
    if (cost.canFail || cost.retried > 0) retried = Math.max(retried, unbounded + cost.retried);
    unbounded += cost.unbounded;
    ways *= cost.ways;
  }
  return { unbounded, retried, ways, canFail: true };
}

function elementCost(element: AST.Element, refuse: Refuse): Cost {
  switch (element.type) {
    case "Quantifier":
      return quantifierCost(element, refuse);
    case "Group":
    case "CapturingGroup":
      return choiceCost(element.alternatives, refuse);
    case "Assertion":
      return element.kind === "lookahead" || element.kind === "lookbehind" ? assertionCost(element, refuse) : CHARACTER;
    case "Backreference":
      return refuse("refers to a group");
    default:
      return CHARACTER;
  }
}

/** Lookarounds are matched once per place, and nothing inside is retried once they have matched. */
function assertionCost({ alternatives }: AST.LookaroundAssertion, refuse: Refuse): Cost {
  const { unbounded, retried, ways } = choiceCost(alternatives, refuse);
  return { unbounded: 0, retried: Math.max(unbounded, retried), ways, canFail: true };
}

function quantifierCost({ element, min, max }: AST.Quantifier, refuse: Refuse): Cost {
  const canFail = min > 0;
  const inner = elementCost(element, refuse);
  if (max <= 1) return { ...inner, ways: inner.ways + 1, canFail };
  if (inner.unbounded > 0 || inner.retried > 0 || inner.ways > 1) return refuse("repeats a group with choices or repetitions inside");
  return max > MAX_REPEATS ? { ...NOTHING, unbounded: 1, canFail } : { ...NOTHING, ways: max - min + 1, canFail };
}
