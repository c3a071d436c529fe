/** Random draws that are a pure function of a seed and a place: of the package's insides, the only thing recipes use. */
export { uniform } from "../../src/util/rng.ts";
