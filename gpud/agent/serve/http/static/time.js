// Moments and figures as people here write them: ISO order, 24 hours, the browser's zone or UTC.

/** The zone in use: UTC, or the browser's. */
export const zoneInUse = { utc: false };
export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86400;

/** The name of the zone in use. */
export function zone() {
  return zoneInUse.utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** How far that zone is from UTC at a moment: "UTC+02:00". */
export function offset(at_s) {
  const minutes = zoneInUse.utc ? 0 : -new Date(at_s * 1000).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** "2026-11-21" */
export function day(at_s) {
  const [year, month, date] = fields(at_s);
  return `${year}-${two(month + 1)}-${two(date)}`;
}

/** "22:31", or "22:31:05" */
export function clock(at_s, seconds = false) {
  const [, , , hour, minute, second] = fields(at_s);
  return `${two(hour)}:${two(minute)}${seconds ? `:${two(second)}` : ""}`;
}

/** "2026-11-21 22:31" */
export function moment(at_s, seconds = false) {
  return `${day(at_s)} ${clock(at_s, seconds)}`;
}

/** "3 min ago"; what is yet to come is "in 3 min". */
export function ago(at_s, now_s) {
  const past = now_s - at_s;
  const size = Math.abs(past);
  if (size < 5) return "just now";
  const [unit, name] = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [1, "s"]].find(
    ([length]) => size >= length * (length === DAY ? 2 : 1),
  );
  const text = `${Math.floor(size / unit)} ${name}`;
  return past < 0 ? `in ${text}` : `${text} ago`;
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
    const text =
      step >= DAY ? shown : date === last ? clock(at_s, step < MINUTE) :
      `${clock(at_s, step < MINUTE)}\n${shown}`;
    last = date;
    return text;
  });
}

function fields(at_s) {
  const date = new Date(at_s * 1000);
  const zone = zoneInUse.utc ? "UTC" : "";
  const names = ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"];
  return names.map((name) => date[`get${zone}${name}`]());
}

function two(number) {
  return String(number).padStart(2, "0");
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

/** The labels of an axis, all with one prefix where they are of one size. */
export function labels(unit, splits) {
  const values = splits.filter((value) => value !== null);
  const last = values.at(-1) ?? 0;
  const first = values.find((value) => value > 0) ?? last;
  const shared = last / first < 100 ? prefix(unit, last) : null;
  return splits.map((value) => {
    if (value === null) return "";
    const { factor, symbol } = shared ?? prefix(unit, value);
    return `${Number((value / factor).toPrecision(6))} ${symbol}`;
  });
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
