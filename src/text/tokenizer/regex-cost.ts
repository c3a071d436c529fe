/**
 * Bound on the cost of a tokenizer's regular expressions. JavaScript matches by backtracking, so that an expression from an untrusted file
 * could take exponential time.
 */
import { RegExpParser, type AST } from "@eslint-community/regexpp";
import { UnsupportedError } from "../../base/errors.ts";

/** Max length of an expression, in UTF-16 units. */
const MAX_LENGTH = 4096;
/** Max upper bound of a quantifier that counts as bounded, so that it multiplies the ways of a match; larger ones count as unbounded. */
const MAX_REPEATS = 64;
/** Max ways in which the bounded parts of an expression can match. */
const MAX_WAYS = 4096;

const parser = new RegExpParser({ ecmaVersion: 2025 });

/** Cost of a part of an expression. */
interface Cost {
  /** Max number of unbounded repetitions on one way through the part. */
  readonly unbounded: number;
  /**
   * Number of unbounded repetitions that are retried: they stand before the last place at which the part can fail. Each multiplies the work
   * at one start position by the text's length.
   */
  readonly retried: number;
  /** Number of ways in which the bounded parts can match. */
  readonly ways: number;
  /** Whether the part may not match, so that the matcher goes back to earlier choices. */
  readonly canFail: boolean;
}

const NOTHING: Cost = { unbounded: 0, retried: 0, ways: 1, canFail: false };
/** Cost of a part that matches one way or fails: a character, a class, an anchor. */
const CHARACTER: Cost = { ...NOTHING, canFail: true };

/**
 * Requires that matching an expression takes at most quadratic time in the length of the text: from each start position at most one
 * unbounded repetition may be retried. The expressions of all supported models satisfy this: `\s+(?!\S)`, `\s*[\r\n]+`.
 *
 * @param where - Place of the expression, for the message.
 * @throws UnsupportedError `E_UNSUPPORTED` for repeated groups with choices or repetitions inside (`(a+)+`), two unbounded repetitions
 *   before another part that can fail (`a*a*b`), references to groups, and expressions that do not parse.
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

/** Parses an expression; null if it does not parse. */
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

/** Throws the error for the whole expression. */
type Refuse = (why: string) => never;

/** Returns the cost of alternatives: of the most expensive one, and the sum of all ways. */
function choiceCost(alternatives: readonly AST.Alternative[], refuse: Refuse): Cost {
  const costs = alternatives.map(({ elements }) => sequenceCost(elements, refuse));
  return {
    unbounded: Math.max(...costs.map(({ unbounded }) => unbounded)),
    retried: Math.max(...costs.map(({ retried }) => retried)),
    ways: costs.reduce((sum, { ways }) => sum + ways, 0),
    canFail: true,
  };
}

/** Returns the cost of parts that follow each other: a part that can fail retries the unbounded repetitions before it. */
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

/** Returns the cost of one part of a sequence. */
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

/** Returns the cost of a lookaround, which is matched once per position. Once it has matched, nothing inside it is retried. */
function assertionCost({ alternatives }: AST.LookaroundAssertion, refuse: Refuse): Cost {
  const { unbounded, retried, ways } = choiceCost(alternatives, refuse);
  return { unbounded: 0, retried: Math.max(unbounded, retried), ways, canFail: true };
}

/** Returns the cost of a repeated part. A part that is repeated more than once must match in a single way. */
function quantifierCost({ element, min, max }: AST.Quantifier, refuse: Refuse): Cost {
  const canFail = min > 0;
  const repeated = elementCost(element, refuse);
  if (max <= 1) return { ...repeated, ways: repeated.ways + 1, canFail };
  const isSimple = repeated.unbounded === 0 && repeated.retried === 0 && repeated.ways === 1;
  if (!isSimple) return refuse("repeats a group with choices or repetitions inside");
  return max > MAX_REPEATS ? { ...NOTHING, unbounded: 1, canFail } : { ...NOTHING, ways: max - min + 1, canFail };
}
