// How is a number written? As in report/words/wording.py; a test compares both.

const NO_NUMBER = "–";
const LETTERS = ["", "k", "M", "G", "T", "P", "E", "Z"];
const SECONDS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
const BYTES = ["KiB", "MiB", "GiB", "TiB", "PiB"].map((name, power) => [1024 ** (power + 1), name]);
const BYTE_RATES = thousands("B/s", 6);
const FLOPS = thousands("FLOP", 8);
const HERTZ = thousands("Hz", 4);

function thousands(unit, steps) {
  return LETTERS.slice(0, steps).map((letter, power) => [1000 ** power, `${letter}${unit}`]);
}

/** As toFixed (at most two digits), but ties are rounded to even, as in Python. */
function fixed(number, digits) {
  const size = Math.abs(number);
  const isTie = Number.isInteger(size * 2 ** (digits + 1)) && (size * 10 ** digits * 2) % 2 === 1;
  if (!isTie) return number.toFixed(digits);
  const below = Math.floor(size * 10 ** digits);
  const even = (below + (below % 2)) / 10 ** digits;
  return (number < 0 ? "-" : "") + even.toFixed(digits);
}

/** At least three significant digits: 1.23, 12.3, 1,234. */
function threeDigits(number) {
  const size = Math.abs(number);
  if (size >= 99.95) return grouped(Number(fixed(number, 0)));
  return fixed(number, size >= 9.995 ? 1 : 2);
}

function grouped(whole) {
  return (Number.isSafeInteger(whole) ? whole : BigInt(whole)).toLocaleString("en-US");
}

/** The number in the largest unit that fits. `units` ascend; 0.9995 of a unit is enough, so 1000 is never shown. */
function scaled(number, units) {
  if (!Number.isFinite(number)) return NO_NUMBER;
  if (number === 0) return "0";
  const [size, name] = units.findLast(([least]) => Math.abs(number) >= least * 0.9995) ?? units[0];
  return `${threeDigits(number / size)} ${name}`;
}

function count(number) {
  if (!Number.isFinite(number)) return NO_NUMBER;
  return Number.isInteger(number) ? grouped(number + 0) : threeDigits(number); // + 0: for minus zero
}

function duration(ns) {
  return Math.abs(ns) < 999.5 && Number.isInteger(ns) && ns !== 0 ? `${ns} ns` : scaled(ns, SECONDS);
}

function share(fraction) {
  if (!Number.isFinite(fraction)) return NO_NUMBER;
  if (fraction === 0) return "0";
  if (fraction > 0 && fraction < 0.01) return "<1 %";
  return fraction > 0.99 && fraction < 1 ? ">99 %" : `${fixed(fraction * 100, 0)} %`;
}

/** With a decimal where it is small: `0.4 %`, `41 %`. */
function fineShare(fraction) {
  if (fraction > 0 && fraction < 0.0005) return "<0.1 %";
  return fraction >= 0.0005 && fraction < 0.0995 ? `${fixed(fraction * 100, 1)} %` : share(fraction);
}

function withUnit(number, unit) {
  return Number.isFinite(number) ? `${threeDigits(number)} ${unit}` : NO_NUMBER;
}

const IN_WORDS = {
  text: String,
  count,
  number: count,
  position: count,
  share,
  ns: duration,
  bytes: (bytes) => (Math.abs(bytes) < 1023.5 ? `${count(bytes)} B` : scaled(bytes, BYTES)),
  bytes_per_second: (rate) => scaled(rate, BYTE_RATES),
  flop: (flop) => scaled(flop, FLOPS),
  flop_per_second: (rate) => `${scaled(rate, FLOPS)}/s`,
  flop_per_byte: (intensity) => withUnit(intensity, "FLOP/B"),
  watt: (power) => withUnit(power, "W"),
  celsius: (heat) => withUnit(heat, "°C"),
  hertz: (clock) => scaled(clock, HERTZ),
};

/** A value in words; null is unknown. */
function inWords(value, unit) {
  return value === null || value === undefined ? NO_NUMBER : IN_WORDS[unit](value);
}
