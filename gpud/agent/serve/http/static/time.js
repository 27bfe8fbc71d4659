// Moments and figures as people here write them: ISO order, 24 hours, the browser's zone.

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86400;
// Swedish writes dates and hours as ISO 8601 does.
const DATE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" });
const CLOCK = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium" });

/** The browser's zone and how far it is from UTC: "Europe/Berlin (UTC+01:00)". */
export function zone(at_s) {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === offset(at_s) ? name : `${name} (${offset(at_s)})`;
}

/** How far the zone is from UTC at a moment: "UTC+02:00". */
function offset(at_s) {
  const minutes = -new Date(at_s * 1000).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "-" : "+"}${String(hours).padStart(2, "0")}:${String(rest).padStart(2, "0")}`;
}

/** "2026-11-21" */
function day(at_s) {
  return DATE.format(at_s * 1000);
}

/** "22:31", or "22:31:05" */
export function clock(at_s, seconds = false) {
  return CLOCK.format(at_s * 1000).slice(0, seconds ? 8 : 5);
}

/** "2026-11-21 22:31" */
export function moment(at_s, seconds = false) {
  return `${day(at_s)} ${clock(at_s, seconds)}`;
}

/** "3 min ago"; what is yet to come is "in 3 min". */
function ago(at_s, now_s) {
  const past = now_s - at_s;
  if (Math.abs(past) < 5) return "just now";
  return past < 0 ? `in ${length(-past)}` : `${length(past)} ago`;
}

/** A duration in its largest unit: "3 min". */
export function length(size_s) {
  const [unit, name] = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [1, "s"]].find(
    ([least]) => size_s >= least * (least === DAY ? 2 : 1),
  );
  return `${Math.floor(size_s / unit)} ${name}`;
}

/** Rewrite the moments below `root`; their markup says how each is meant. */
export function rewrite(root, now_s = Date.now() / 1000) {
  for (const element of root.querySelectorAll("time[data-moment]")) {
    const at_s = Date.parse(element.dateTime) / 1000;
    if (!Number.isFinite(at_s)) continue;
    const exact = `${moment(at_s, true)} ${offset(at_s)}`;
    const form = element.dataset.moment;
    const text = form === "ago" ? ago(at_s, now_s) : form === "clock" ? clock(at_s, true) : moment(at_s);
    if (element.textContent !== text) element.textContent = text;
    if (element.title !== exact) element.title = exact;
  }
}

/** What is written at marks of time: the date where a day begins, the year where it is another. */
export function tickLabels(splits, step) {
  let last = "";
  return splits.map((at_s) => {
    const date = day(at_s);
    const shown = date.slice(0, 4) === last.slice(0, 4) ? date.slice(5) : date;
    const hour = clock(at_s, step < MINUTE);
    const text = step >= DAY ? shown : date === last ? hour : `${hour}\n${shown}`;
    last = date;
    return text;
  });
}

const PREFIXES = {
  celsius: [[1, "°C"]],
  watts: [[1, "W"]],
  hertz: [[1e6, "MHz"]],
  ratio: [[0.01, "%"]],
  gibibytes: [[1, "GiB"]],
  seconds: [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
  bytes_per_second: [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"], [1e12, "TB/s"]],
  percent: [[1, "%"]],
  operations_per_second: [[1, "op/s"], [1e6, "Mop/s"], [1e9, "Gop/s"], [1e12, "Top/s"]],
  flops_per_second: [[1, "flop/s"], [1e6, "Mflop/s"], [1e9, "Gflop/s"], [1e12, "Tflop/s"]],
};

/** The prefix for a figure of this size: {factor, symbol}; `unit` is the API's base unit. */
function prefix(unit, size) {
  const steps = PREFIXES[unit] ?? [[1, unit.replaceAll("_", " ")]];
  const rounded = Number(Math.abs(size).toPrecision(4)); // 999.99 µs is 1 ms
  const [factor, symbol] = steps.findLast(([least]) => rounded >= least) ?? steps[0];
  return { factor, symbol };
}

/** A figure with its unit: 1.234e-5 seconds is "12.34 µs". */
export function figure(value, unit) {
  if (value === null || value === undefined) return "no figure";
  const { factor, symbol } = prefix(unit, value);
  return `${Number((value / factor).toPrecision(4))} ${symbol}`;
}

/** Two figures of one unit: "12.81 to 13.29 µs". */
export function between(low, high, unit) {
  const { factor, symbol } = prefix(unit, high);
  return `${[low, high].map((value) => Number((value / factor).toPrecision(4))).join(" to ")} ${symbol}`;
}

/** How a figure compares with another one, as the tables write it: 1.12 is "12 % slower". */
export function compared(slowdown) {
  const percent = 100 * Math.abs(slowdown - 1);
  const written = percent.toFixed(percent < 9.95 ? 1 : 0);
  if (Number(written) === 0) return "the same";
  return `${written} % ${slowdown > 1 ? "slower" : "faster"}`;
}
