/** Counter-based random draws: pure functions of a seed and coordinates. The recipes import no other internal module. */
export { uniform } from "../../src/base/util/rng.ts";
