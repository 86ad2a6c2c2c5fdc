// A table as CSV: RFC 4180, unrounded numbers, the unit after each column's name.

const CSV_UNITS = { text: "", count: "", number: "", position: "" };

/** `rows`: which rows of the columns, in this order. */
function csvOf(columns, rows) {
  const lines = [columns.map(csvHeading), ...rows.map((row) => columns.map((column) => csvCell(column.values[row])))];
  return lines.map((cells) => `${cells.map(csvQuoted).join(",")}\r\n`).join("");
}

function csvHeading({ name, unit }) {
  return csvCell((CSV_UNITS[unit] ?? unit) ? `${name} [${unit}]` : name);
}

/** A text that a spreadsheet would take for a formula gets an apostrophe, and stays text. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
}

function csvQuoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveFile(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // the browser reads it after the click
}
