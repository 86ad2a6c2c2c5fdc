// Tables: sort, filter, unfold, save. All text from a recording is set as textContent.

/** Rows drawn first, and with each "more": few enough for a browser to lay out without a noticeable pause. */
const TABLE_CHUNK = 100;
/** A text column with at most this many different values is filtered with a list. */
const TABLE_CHOICES = 16;
/** Longer texts are shortened until they are unfolded: without C++ namespaces, and without their middle. */
const TABLE_TEXT = 56;
const TABLE_SIDE_TEXT = 36;
const TABLE_TEXT_END = 14;
/** The number of columns on paper, as in tables.css. */
const TABLE_PAPER = 11;

const tablesById = new Map();

/** Fills each element with data-table="<id>". */
function startTables(tables) {
  for (const table of tables) {
    const element = document.querySelector(`[data-table="${CSS.escape(table.id)}"]`);
    if (element) tablesById.set(table.id, drawnTable(element, table));
  }
}

/** Goes to the row whose first column is `text`; false if there is none. */
function scrollToRow(id, text) {
  const state = tablesById.get(id);
  const row = state ? state.table.columns[0].values.indexOf(text) : -1;
  if (row < 0) return false;
  clearTableFilters(state);
  state.shown = Math.max(state.shown, state.rows.indexOf(row) + 1);
  drawTableRows(state);
  const element = state.body.rows[state.rows.indexOf(row)];
  element.classList.add("pointed-at");
  element.tabIndex = -1;
  element.scrollIntoView({ block: "center" });
  element.focus({ preventScroll: true });
  return true;
}

// --- elements of a table ---------------------------------------------------------------------------------------------

function drawnTable(element, table) {
  const state = { table, rows: [], shown: TABLE_CHUNK, sortedBy: null, descending: true, words: [], choices: new Map() };
  const title = tableElement("h2", { id: `table-${table.id}`, textContent: table.title });
  element.classList.add("data-table");
  element.replaceChildren(title);
  if (table.explained) element.append(tableElement("p", { className: "table-explained", textContent: table.explained }));
  element.append(tableTools(state), tableScroll(state, title.id), tableMore(state));
  const explained = tableExplanations(table);
  if (explained) element.append(explained);
  chooseTableRows(state);
  return state;
}

function tableElement(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function tableButton(text, onClick) {
  const button = tableElement("button", { type: "button", textContent: text });
  button.addEventListener("click", () => onClick(button));
  return button;
}

function tableTools(state) {
  const { table } = state;
  const tools = tableElement("div", { className: "table-tools" });
  if (table.columns[0].values.length > 1 && table.columns.some((column) => column.unit === "text")) {
    tools.append(tableFilter(state));
    for (const column of table.columns) if (isTableChoice(column)) tools.append(tableChoice(state, column));
  }
  tools.append(
    tableButton("Copy as CSV", (button) => copyText(csvOf(table.columns, state.rows), button)),
    tableButton("Save CSV", () => saveFile(`perfdoctor-${table.id}.csv`, csvOf(table.columns, state.rows), "text/csv;charset=utf-8")),
  );
  state.count = tableElement("p", { className: "table-count" });
  state.count.setAttribute("role", "status");
  return tableElement("div", {}, tools, state.count);
}

function tableFilter(state) {
  state.filter = tableElement("input", { type: "search", placeholder: "text in any column", spellcheck: false, autocomplete: "off" });
  state.filter.addEventListener("input", () => {
    state.words = state.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    chooseTableRows(state);
  });
  return tableElement("label", {}, "Filter ", state.filter);
}

function isTableChoice(column) {
  if (column.unit !== "text") return false;
  const different = new Set(column.values).size;
  return different > 1 && different <= TABLE_CHOICES && different * 2 <= column.values.length;
}

function tableChoice(state, column) {
  const select = tableElement("select", {}, tableElement("option", { value: "", textContent: "all" }));
  const values = [...new Set(column.values)].sort((one, other) => one.localeCompare(other, "en"));
  values.forEach((value, number) => select.append(tableElement("option", { value: String(number + 1), textContent: shortTableText(value) || "unknown" })));
  select.addEventListener("change", () => {
    if (select.value) state.choices.set(column, values[Number(select.value) - 1]);
    else state.choices.delete(column);
    chooseTableRows(state);
  });
  (state.selects ??= []).push(select);
  return tableElement("label", {}, `${column.name} `, select);
}

function tableScroll(state, labelledBy) {
  state.body = document.createElement("tbody");
  state.foot = document.createElement("tfoot");
  const head = tableElement("thead", {}, tableElement("tr", {}, ...state.table.columns.map((column) => tableHeading(state, column))));
  const table = tableElement("table", {}, head, state.body, state.foot);
  const scroll = tableElement("div", { className: "table-scroll", tabIndex: 0 }, table);
  scroll.classList.toggle("beyond-paper", state.table.columns.length > TABLE_PAPER);
  for (const element of [table, scroll]) element.setAttribute("aria-labelledby", labelledBy);
  scroll.setAttribute("role", "region");
  return scroll;
}

function tableHeading(state, column) {
  const button = tableButton(column.name, () => sortTable(state, column));
  const heading = tableElement("th", { scope: "col", className: tableClass(column), title: column.explained }, button);
  (state.headings ??= new Map()).set(column, heading);
  return heading;
}

const tableClass = (column) => (column.unit === "text" ? "words" : "number");

function tableMore(state) {
  state.more = tableElement("p", { className: "table-more" },
    tableButton(`Show ${TABLE_CHUNK} more`, () => showMoreOf(state, state.shown + TABLE_CHUNK)),
    tableButton("Show all", () => showMoreOf(state, state.rows.length)));
  return state.more;
}

/** Keyboard focus goes to the first new row. */
function showMoreOf(state, shown) {
  const first = state.shown;
  state.shown = shown;
  drawTableRows(state);
  if (!state.more.hidden) return;
  state.body.rows[first].tabIndex = -1;
  state.body.rows[first].focus({ preventScroll: true });
}

function tableExplanations(table) {
  const explained = table.columns.filter((column) => column.explained);
  if (!explained.length) return null;
  const list = document.createElement("dl");
  for (const { name, explained: text } of explained) {
    list.append(tableElement("dt", { textContent: name }), tableElement("dd", { textContent: text }));
  }
  return tableElement("details", { className: "table-columns" }, tableElement("summary", { textContent: "Columns" }), list);
}

// --- which rows, in which order --------------------------------------------------------------------------------------

function chooseTableRows(state) {
  const { table, words, choices } = state;
  const texts = table.columns.filter((column) => column.unit === "text");
  state.rows = [];
  for (let row = 0; row < table.columns[0].values.length; row++) {
    if ([...choices].some(([column, value]) => column.values[row] !== value)) continue;
    const text = words.length ? texts.map((column) => column.values[row]).join("\n").toLowerCase() : "";
    if (words.every((word) => text.includes(word))) state.rows.push(row);
  }
  state.shown = TABLE_CHUNK;
  orderTableRows(state);
  drawTableRows(state);
}

/** Numbers are sorted largest first, texts alphabetically; a second click reverses the order. */
function sortTable(state, column) {
  state.descending = state.sortedBy === column ? !state.descending : column.unit !== "text";
  state.sortedBy = column;
  for (const heading of state.headings.values()) heading.removeAttribute("aria-sort");
  state.headings.get(column).setAttribute("aria-sort", state.descending ? "descending" : "ascending");
  orderTableRows(state);
  drawTableRows(state);
}

/** Unknown values are last in both orders; equal values keep their original order. */
function orderTableRows(state) {
  if (!state.sortedBy) return;
  const { values, unit } = state.sortedBy;
  const turn = state.descending ? -1 : 1;
  const isKnown = (value) => value !== null && value !== "";
  const compared = unit === "text" ? new Intl.Collator("en", { numeric: true }).compare : (one, other) => one - other;
  state.rows.sort((one, other) => {
    const [first, second] = [values[one], values[other]];
    if (!isKnown(first) || !isKnown(second)) return isKnown(second) - isKnown(first) || one - other;
    return turn * compared(first, second) || one - other;
  });
}

function clearTableFilters(state) {
  state.words = [];
  state.choices.clear();
  if (state.filter) state.filter.value = "";
  for (const select of state.selects ?? []) select.value = "";
  chooseTableRows(state);
}

// --- drawing ---------------------------------------------------------------------------------------------------------

function drawTableRows(state) {
  const { table, rows } = state;
  state.shown = Math.max(TABLE_CHUNK, Math.min(state.shown, rows.length));
  const drawn = rows.slice(0, state.shown);
  state.body.replaceChildren(...drawn.map((row) => tableElement("tr", {}, ...table.columns.map((column, place) => tableCell(column, row, place === 0)))));
  state.foot.replaceChildren(...tableSum(table.columns, rows));
  state.more.hidden = drawn.length === rows.length;
  state.count.textContent = tableCount(state, drawn.length);
}

function tableCount({ table, rows }, drawn) {
  const known = table.columns[0].values.length;
  const left = table.rows_in_all - known;
  if (known === 1 && left === 0 && rows.length === 1) return ""; // a single row needs no count
  const matching = rows.length < known ? `${count(rows.length)} of ${count(known)} rows match` : known === 1 ? "1 row" : `${count(known)} rows`;
  const shown = drawn < rows.length ? `, ${count(drawn)} shown` : "";
  return `${matching}${shown}${left > 0 ? `; ${count(left)} more with the lowest cost are not in this report` : ""}`;
}

function tableCell(column, row, isFirst) {
  const value = column.values[row];
  const cell = tableElement("td", { className: tableClass(column) });
  if (column.unit === "text") cell.append(tableText(value, isFirst ? TABLE_TEXT : TABLE_SIDE_TEXT));
  else cell.textContent = tableNumber(value, column.unit);
  if (column.unit === "share" && value > 0) {
    cell.classList.add("bar-cell");
    cell.style.setProperty("--share", String(Math.min(value, 1)));
  }
  return cell;
}

function tableNumber(value, unit) {
  return unit === "share" && value !== null ? fineShare(value) : inWords(value, unit);
}

function shortTableText(text, most = TABLE_TEXT) {
  if (text.length <= most) return text;
  const plain = text.replaceAll(/(?:\w+::|\(anonymous namespace\)::|<unnamed>::)+(?=[\w(<])/g, "");
  return plain.length <= most ? plain : `${plain.slice(0, most - TABLE_TEXT_END - 1)}…${plain.slice(-TABLE_TEXT_END)}`;
}

/** A long text is a button that unfolds it. */
function tableText(text, most) {
  if (text.length <= most) return text;
  const button = tableButton(shortTableText(text, most), () => {
    const unfold = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(unfold));
    button.textContent = unfold ? text : shortTableText(text, most);
  });
  Object.assign(button, { className: "table-text", title: text });
  button.setAttribute("aria-expanded", "false");
  return button;
}

/** Shares are rounded: without rounding again, a sum could look like less than the whole. */
function tableTotal(values, unit) {
  const total = values.reduce((sum, value) => sum + value, 0);
  return unit === "share" ? Number(total.toFixed(4)) : total;
}

/** Sums of the matching rows, in columns in which a sum is meaningful. */
function tableSum(columns, rows) {
  if (rows.length < 2 || !columns.some((column) => column.adds_up)) return [];
  const cells = columns.map((column, place) => {
    const cell = tableElement(place ? "td" : "th", { className: tableClass(column) });
    if (!place) Object.assign(cell, { scope: "row", textContent: `sum of ${count(rows.length)} rows` });
    const known = column.adds_up ? rows.map((row) => column.values[row]).filter((value) => value !== null) : [];
    if (known.length) cell.textContent = tableNumber(tableTotal(known, column.unit), column.unit);
    return cell;
  });
  return [tableElement("tr", {}, ...cells)];
}
