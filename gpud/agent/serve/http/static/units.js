// Figures come in base units; people read them with a prefix, three or four digits of it.

const STEPS = {
  seconds: [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
  bytes_per_second: [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"], [1e12, "TB/s"]],
  flops_per_second: [[1, "flop/s"], [1e6, "Mflop/s"], [1e9, "Gflop/s"], [1e12, "Tflop/s"]],
};

/**
 * The prefix for a figure of this size.
 * @param {string} unit base unit, as the API names it
 * @param {number} size
 * @returns {{factor: number, symbol: string}}
 */
export function prefix(unit, size) {
  const steps = STEPS[unit] ?? [[1, unit.replaceAll("_", " ")]];
  const rounded = Number(Math.abs(size).toPrecision(4)); // 999.99 µs is 1 ms
  const found = steps.findLast(([factor]) => rounded >= factor) ?? steps[0];
  return { factor: found[0], symbol: found[1] };
}

/**
 * A figure with its unit: 1.234e-5 seconds is "12.34 µs".
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function figure(value, unit) {
  if (value === null || value === undefined) return "no figure";
  const { factor, symbol } = prefix(unit, value);
  return `${Number((value / factor).toPrecision(4))} ${symbol}`;
}

/**
 * The labels of an axis, all with one prefix where they are of one size.
 * @param {string} unit
 * @param {(number | null)[]} splits
 */
export function labels(unit, splits) {
  const known = splits.filter((one) => one !== null);
  const last = known.at(-1) ?? 0;
  const first = known.find((one) => one > 0) ?? last;
  const one = last / first < 100 ? prefix(unit, last) : null;
  return splits.map((value) => {
    if (value === null) return "";
    const { factor, symbol } = one ?? prefix(unit, value);
    return `${Number((value / factor).toPrecision(6))} ${symbol}`;
  });
}

/** Two figures of one unit: "12.81 to 13.29 µs". */
export function between(low, high, unit) {
  const { factor, symbol } = prefix(unit, high);
  return `${[low, high].map((one) => Number((one / factor).toPrecision(4))).join(" to ")} ${symbol}`;
}

/** How a figure compares with another one, as the tables write it: 1.12 is "12 % slower". */
export function compared(slowdown) {
  const percent = 100 * Math.abs(slowdown - 1);
  const written = percent.toFixed(percent < 9.95 ? 1 : 0);
  if (Number(written) === 0) return "the same";
  return `${written} % ${slowdown > 1 ? "slower" : "faster"}`;
}
