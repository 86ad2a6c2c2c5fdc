// How is a number said? As in report/wording.py, which a test holds it against.

const NO_NUMBER = "–";
const SECONDS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
const BYTES = [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"], [2 ** 50, "PiB"]];
const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z"];
const thousands = (unit) => PREFIXES.map((letter, power) => [1000 ** power, `${letter}${unit}`]);

/** Three digits that count: 0.123, 1.23, 12.3, 123. */
function threeDigits(number) {
  const size = Math.abs(number);
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return size > 0 && size < 0.1 ? String(Number(number.toPrecision(2))) : number.toFixed(digits);
}

/** The number in the largest of the units in which it is at least one. */
function scaled(number, units) {
  let [size, name] = units[0];
  for (const [next, nextName] of units) if (Math.abs(number) >= next * 0.9995) [size, name] = [next, nextName];
  return `${threeDigits(number / size)} ${name}`;
}

function count(number) {
  return Number.isInteger(number) ? number.toLocaleString("en-US") : threeDigits(number);
}

function share(number) {
  if (number === 0) return "0";
  if (number > 0 && number < 0.01) return "<1 %";
  return number > 0.99 && number < 1 ? ">99 %" : `${(number * 100).toFixed(0)} %`;
}

const IN_WORDS = {
  text: String,
  count,
  number: count,
  position: count,
  share,
  ns: (ns) => (Math.abs(ns) < 999.5 && Number.isInteger(ns) ? `${ns} ns` : scaled(ns, SECONDS)),
  bytes: (bytes) => (Math.abs(bytes) < 1023.5 ? `${count(bytes)} B` : scaled(bytes, BYTES)),
  bytes_per_second: (rate) => scaled(rate, thousands("B/s")),
  flop: (flop) => scaled(flop, thousands("FLOP")),
  flop_per_second: (rate) => scaled(rate, thousands("FLOP/s")),
  flop_per_byte: (intensity) => `${threeDigits(intensity)} FLOP/B`,
  watt: (power) => `${threeDigits(power)} W`,
  celsius: (heat) => `${threeDigits(heat)} °C`,
  hertz: (clock) => scaled(clock, thousands("Hz")),
};

/** A value in words; null is not known. */
function inWords(value, unit) {
  return value === null || value === undefined ? NO_NUMBER : IN_WORDS[unit](value);
}
