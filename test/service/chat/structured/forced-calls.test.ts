/** Forced calls parsed incrementally, compared with parsing the whole text. */
import { fc, test } from "@fast-check/vitest";
import { expect } from "vitest";
import { ForcedCalls, type CallDelta } from "../../../../src/service/chat/text/forced-calls.ts";

/** Joins deltas to calls, with the id of each first delta. */
function joined(deltas: readonly CallDelta[]): object[] {
  const calls: { id: string; type: string; function: { name: string; arguments: string } }[] = [];
  for (const { index, id, type, function: called } of deltas) {
    if (id !== undefined) calls[index] = { id, type: type!, function: { name: called.name!, arguments: "" } };
    calls[index]!.function.arguments += called.arguments;
  }
  return calls;
}

const name = fc.constantFrom("add", "a b", 'quote "', "}{", "é");
const given = fc.dictionary(fc.constantFrom("a", "}", '"', "\\"), fc.jsonValue(), { maxKeys: 3 });
const calls = fc.array(fc.record({ name, parameters: given }), { minLength: 1, maxLength: 4 });
const text = fc.tuple(calls, fc.constantFrom(undefined, 1, "\t")).map(([value, space]) => JSON.stringify(value, null, space));

test.prop([text, fc.array(fc.nat(400), { maxLength: 12 })], { numRuns: 500 })(
  "calls in any chunks are parsed like the whole text",
  (whole, cuts) => {
    const forced = new ForcedCalls(null);
    const stream = forced.stream(0);
    const places = [0, ...cuts.map((cut) => cut % (whole.length + 1)).toSorted((a, b) => a - b), whole.length];
    const deltas = places.slice(1).flatMap((end, at) => stream.push(whole.slice(places[at], end)));
    expect(joined(deltas)).toEqual(forced.read(0, whole).toolCalls);
  },
);
