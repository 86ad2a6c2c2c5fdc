// What is this piece? Its full name, its numbers, its launch and what it launched; and one line for screen readers.

const KIND_WORDS = {
  step: "step", idle: "idle", kernels: "kernel", collectives: "collective", copies: "copy", ranges: "range", ops: "op",
  functions: "function", calls: "call", os_calls: "operating-system call", counter: "counter",
};
/** The kind of a track's events. */
function kindWord(track) {
  return KIND_WORDS[track.kind] || track.kind.replaceAll("_", " ");
}

/** More of what one call launched is counted, not listed. */
const LISTED_LAUNCHES = 5;
let timelineCauses = {};

/** The label of an idle cause, as in the step's bar; other names unchanged. */
function idleWords(cause) {
  return Object.hasOwn(timelineCauses, cause) ? timelineCauses[cause] : cause;
}

/** An element with properties and children; strings become text, never markup. */
function timelineElement(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

/** A list of terms and values, from pairs of texts. */
function timelineTerms(pairs) {
  const rows = pairs.map(([what, value]) => {
    const [term, said] = [timelineElement("dt", { textContent: what }), timelineElement("dd", { textContent: value })];
    return timelineElement("div", {}, term, said);
  });
  return timelineElement("dl", {}, ...rows);
}

/** The texts about a piece. */
class TimelineWords {
  constructor(data) {
    this.data = data;
  }

  /** The name for a tooltip and for screen readers. */
  called(track, piece) {
    return `${track.count[piece] > 1 ? "the longest: " : ""}${this.name(track, piece)}`;
  }

  /** What stands before a name in the panel; merged events have the name of the longest. */
  lead(track, piece) {
    return track.count[piece] > 1 ? `many short events, the longest: ${kindWord(track)} ` : `${kindWord(track)} `;
  }

  /** A cause of idle time without "idle: ", which is its kind. */
  name(track, piece) {
    const name = this.data.nameOf(track, piece);
    const words = track.kind === "idle" ? idleWords(name).replace(/^idle: /, "") : name;
    return words || `${kindWord(track)} without a name`;
  }

  where(track) {
    const group = this.data.groups[track.group];
    return `${group.title} · ${track.title}`;
  }

  /** `1,234 events, 87 % busy`; "" of a single event. */
  density(track, piece) {
    if (track.count[piece] <= 1) return "";
    return `${inWords(track.count[piece], "count")} events, ${inWords(track.busy[piece] / track.duration[piece], "share")} busy`;
  }

  /** One line, for the tooltip and for screen readers. */
  line(track, piece) {
    const what = track.count[piece] > 1 ? "merged" : kindWord(track);
    const parts = [what, inWords(track.duration[piece], "ns"), this.density(track, piece), this.where(track)];
    return parts.filter(Boolean).join(", ");
  }

  /** Pairs of term and value, for the panel. */
  rows(track, piece) {
    return [
      ["where", this.where(track)],
      ["duration", exactTime(track.duration[piece])],
      ["start", `${exactTime(track.start[piece])} after the start of the window`],
      ...this.#inStep(track, piece),
      ["merged", this.density(track, piece)],
      ["busy", track.count[piece] > 1 ? exactTime(track.busy[piece]) : ""],
      ["details", this.data.detailOf(track, piece)],
      ["launched", this.#launched(track, piece)],
    ].filter(([, words]) => words);
  }

  #inStep(track, piece) {
    if (track.kind === "step") return [];
    const step = this.data.stepAt(this.data.rankOf(track), track.start[piece]);
    if (!step) return [];
    return [
      [`in its ${this.data.stepWord}`, `${inWords(track.start[piece] - step.start, "ns")} after the start of ${step.name}`],
      [`of the ${this.data.stepWord}`, step.duration ? shareWords(track.duration[piece] / step.duration) : ""],
    ];
  }

  #launched(track, piece) {
    const launch = this.data.launchOf(track, piece);
    if (!launch) return "";
    const by = launch.piece < 0 ? "" : ` by ${this.data.nameOf(launch.track, launch.piece)}`;
    return `${exactTime(track.launch[piece])} before${by}, on ${this.where(launch.track)}`;
  }
}

/** Rounded and to the nanosecond: `12.3 µs (12,345 ns)`. */
function exactTime(ns) {
  return Math.abs(ns) < 1000 ? inWords(ns, "ns") : `${inWords(ns, "ns")} (${ns.toLocaleString("en-US")} ns)`;
}

/** A share with a decimal where it is small. */
function shareWords(part) {
  return part >= 0.0005 && part < 0.0995 ? `${(part * 100).toFixed(1)} %` : inWords(part, "share");
}

/** The panel under the tracks. `act`: {zoomTo, goTo, lookFor}, the actions of its buttons. */
class TimelinePanel {
  constructor(data, words, act) {
    this.data = data;
    this.words = words;
    this.act = act;
    this.element = timelineElement("section", { className: "tl-panel", hidden: true, "aria-label": "Selected event" });
  }

  show(track, piece) {
    const name = this.words.name(track, piece);
    const lead = timelineElement("b", { textContent: this.words.lead(track, piece) });
    this.element.replaceChildren(
      timelineElement("p", { className: "tl-name" }, lead, timelineElement("code", { textContent: name })),
      timelineTerms(this.words.rows(track, piece)),
      this.#launches(track, piece),
      this.#buttons(track, piece, name),
    );
    this.element.hidden = false;
  }

  clear() {
    this.element.hidden = true;
    this.element.replaceChildren();
  }

  #buttons(track, piece, name) {
    const launch = this.data.launchOf(track, piece);
    const copy = this.#button("Copy name", () => copyText(name, copy));
    return timelineElement(
      "div", { className: "tl-buttons" }, copy,
      this.#button("Zoom to it", () => this.act.zoomTo(track, piece)),
      this.#button("Find all of this name", () => this.act.lookFor(name)),
      launch && launch.piece >= 0 ? this.#button("Go to its launch", () => this.act.goTo(launch.track, launch.piece)) : null,
    );
  }

  #launches(track, piece) {
    const { found, inAll } = this.data.launchedBy(track, piece, LISTED_LAUNCHES);
    if (!inAll) return null;
    const items = found.map((each) =>
      timelineElement("li", {}, this.#button(this.words.name(each.track, each.piece), () => this.act.goTo(each.track, each.piece)),
        ` ${inWords(each.track.launch[each.piece], "ns")} later, ${inWords(each.track.duration[each.piece], "ns")}`),
    );
    const rest = inAll - found.length;
    return timelineElement(
      "div", { className: "tl-launches" }, timelineElement("p", { textContent: `Launched in this time: ${inWords(inAll, "count")}` }),
      timelineElement("ul", {}, ...items, rest ? timelineElement("li", { textContent: `and ${inWords(rest, "count")} more` }) : null),
    );
  }

  #button(label, onclick) {
    return timelineElement("button", { type: "button", textContent: label, onclick });
  }
}
