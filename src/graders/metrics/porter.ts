/**
 * Porter's stemmer for English, with the extensions of nltk. Comments name the extensions; all other rules are in the paper.
 *
 * @source M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980; https://www.nltk.org/api/nltk.stem.porter.html, mode
 *   `NLTK_EXTENSIONS`.
 */

/** Extension: words with a stem that is not the result of the steps. */
const IRREGULAR: ReadonlyMap<string, string> = new Map(
  Object.entries({
    ...{ sky: "sky", skies: "sky", dying: "die", lying: "lie", tying: "tie", news: "news", howe: "howe" },
    ...{ inning: "inning", innings: "inning", outing: "outing", outings: "outing", canning: "canning", cannings: "canning" },
    ...{ proceed: "proceed", exceed: "exceed", succeed: "succeed" },
  }),
);

/** Letters that are always vowels. */
const VOWELS: readonly string[] = ["a", "e", "i", "o", "u"];

/** Suffix with its replacement. */
type Rule = readonly [suffix: string, replacement: string];

/** Rules of step 2: double suffixes. */
const STEP_2: readonly Rule[] = [
  ["ational", "ate"],
  ["tional", "tion"],
  ["enci", "ence"],
  ["anci", "ance"],
  ["izer", "ize"],
  // Departures of Porter's own program from his paper, also in nltk: `bli` for `abli`, and `logi`.
  ["bli", "ble"],
  ["alli", "al"],
  ["entli", "ent"],
  ["eli", "e"],
  ["ousli", "ous"],
  ["ization", "ize"],
  ["ation", "ate"],
  ["ator", "ate"],
  ["alism", "al"],
  ["iveness", "ive"],
  ["fulness", "ful"],
  ["ousness", "ous"],
  ["aliti", "al"],
  ["iviti", "ive"],
  ["biliti", "ble"],
  // Extension.
  ["fulli", "ful"],
];

/** Rules of step 3: adjective and noun suffixes. */
const STEP_3: readonly Rule[] = [
  ["icate", "ic"],
  ["ative", ""],
  ["alize", "al"],
  ["iciti", "ic"],
  ["ical", "ic"],
  ["ful", ""],
  ["ness", ""],
];

/** Suffixes that step 4 removes, besides `ion`; it removes the longest one that ends the word. */
const STEP_4 = "al ance ence er ic able ible ant ement ment ent ou ism ate iti ous ive ize".split(" ");

/**
 * Returns the stem of a word.
 *
 * @param word - Word in lower case. Characters other than vowels count as consonants.
 * @returns the stem, equal to `PorterStemmer().stem(word)` of nltk 3.9.1 for words without characters above U+FFFF.
 */
export function porterStem(word: string): string {
  const irregular = IRREGULAR.get(word);
  if (irregular !== undefined) return irregular;
  // Words of one or two letters stay as they are.
  if (Array.from(word).length <= 2) return word;
  const steps = [plural, participle, finalY, step2, step3, step4, finalE, doubleL];
  return steps.reduce((stem, step) => step(stem), word);
}

/** Step 1a. */
function plural(word: string): string {
  // Extension: "dies" becomes "die", and "flies" still "fli".
  if (word.endsWith("ies")) return word.length === 4 ? word.slice(0, -1) : word.slice(0, -2);
  if (word.endsWith("sses")) return word.slice(0, -2);
  return word.endsWith("s") && !word.endsWith("ss") ? word.slice(0, -1) : word;
}

/** Step 1b. */
function participle(word: string): string {
  // Extension: "died" becomes "die", and "spied" becomes "spi".
  if (word.endsWith("ied")) return word.length === 4 ? word.slice(0, -1) : word.slice(0, -2);
  if (word.endsWith("eed")) return measure(word.slice(0, -3)) > 0 ? word.slice(0, -1) : word;
  const suffix = ["ed", "ing"].find((each) => word.endsWith(each) && hasVowel(word.slice(0, -each.length)));
  if (suffix === undefined) return word;
  const stem = word.slice(0, -suffix.length);
  if (/(?:at|bl|iz)$/u.test(stem)) return `${stem}e`;
  if (endsInDouble(stem) && !/[lsz]$/u.test(stem)) return stem.slice(0, -1);
  return measure(stem) === 1 && endsInCvc(stem) ? `${stem}e` : stem;
}

/** Step 1c. Extension: the letter before `y` has to be a consonant and not the first letter, so "enjoy" and "by" stay as they are. */
function finalY(word: string): string {
  const stem = word.slice(0, -1);
  return word.endsWith("y") && stem.length > 1 && isConsonant(stem, stem.length - 1) ? `${stem}i` : word;
}

/** Step 2. */
function step2(word: string): string {
  // Extension: `alli` becomes `al` first, and the result passes the step again.
  if (word.endsWith("alli") && measure(word.slice(0, -4)) > 0) return step2(word.slice(0, -2));
  // The measure includes the `l` of `logi`.
  if (word.endsWith("logi")) return measure(word.slice(0, -3)) > 0 ? word.slice(0, -1) : word;
  return replaceSuffix(word, STEP_2);
}

/** Step 3. */
function step3(word: string): string {
  return replaceSuffix(word, STEP_3);
}

/** Step 4. `ion` is removed only after `s` or `t`. */
function step4(word: string): string {
  const suffix = longest([...STEP_4, "ion"].filter((each) => word.endsWith(each)));
  if (suffix === undefined) return word;
  const stem = word.slice(0, -suffix.length);
  return measure(stem) > 1 && (suffix !== "ion" || /[st]$/u.test(stem)) ? stem : word;
}

/** Step 5a. */
function finalE(word: string): string {
  if (!word.endsWith("e")) return word;
  const stem = word.slice(0, -1);
  return measure(stem) > 1 || (measure(stem) === 1 && !endsInCvc(stem)) ? stem : word;
}

/** Step 5b. */
function doubleL(word: string): string {
  return word.endsWith("ll") && measure(word.slice(0, -1)) > 1 ? word.slice(0, -1) : word;
}

/** Replaces the longest suffix of the word that has a rule, if a vowel and a consonant precede it in this order. */
function replaceSuffix(word: string, rules: readonly Rule[]): string {
  const suffix = longest(rules.map(([each]) => each).filter((each) => word.endsWith(each)));
  const rule = rules.find(([each]) => each === suffix);
  if (rule === undefined) return word;
  const stem = word.slice(0, -rule[0].length);
  return measure(stem) > 0 ? stem + rule[1] : word;
}

/** Returns the longest suffix; undefined without one. */
function longest(suffixes: readonly string[]): string | undefined {
  return suffixes.toSorted((a, b) => b.length - a.length)[0];
}

/** Whether the letter at `index` is a consonant. `y` is one at the start and after a vowel. */
function isConsonant(word: string, index: number): boolean {
  let start = index;
  while (start > 0 && word[start] === "y") start--;
  // In a run of `y`, vowels and consonants alternate.
  const isFirstConsonant = !VOWELS.includes(word[start] ?? "");
  return (index - start) % 2 === 0 ? isFirstConsonant : !isFirstConsonant;
}

/** Returns for each letter whether it is a consonant, in linear time. */
function consonantsOf(word: string): boolean[] {
  const consonants: boolean[] = [];
  for (const [index, letter] of word.split("").entries())
    consonants.push(letter === "y" && index > 0 ? !consonants[index - 1] : !VOWELS.includes(letter));
  return consonants;
}

/** Returns Porter's measure of a stem: the number of changes from a vowel to a consonant. */
function measure(stem: string): number {
  return consonantsOf(stem).filter((isLetterConsonant, index, all) => isLetterConsonant && all[index - 1] === false).length;
}

/** Whether a stem has a vowel. */
function hasVowel(stem: string): boolean {
  return consonantsOf(stem).includes(false);
}

/** Whether a word ends in a double consonant. */
function endsInDouble(word: string): boolean {
  const last = word.length - 1;
  return last > 0 && word[last] === word[last - 1] && isConsonant(word, last);
}

/** Whether a word ends in consonant, vowel, consonant, the last one not `w`, `x` or `y`. Extension: or is a vowel and a consonant. */
function endsInCvc(word: string): boolean {
  const last = word.length - 1;
  if (last === 1) return !isConsonant(word, 0) && isConsonant(word, 1);
  return last > 1 && isConsonant(word, last - 2) && !isConsonant(word, last - 1) && isConsonant(word, last) && !/[wxy]$/u.test(word);
}
