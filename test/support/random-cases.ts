/** Number of random cases of a property: `few`, or `WHETSTONE_FUZZ_FACTOR` times as many. */
export const randomCases = (few: number): number => Math.ceil(few * Number(process.env["WHETSTONE_FUZZ_FACTOR"] ?? 1));
