// What is around the picture? Search, zoom buttons, the choice of a rank, the legend, the keys, and labels that fold.

const TIMELINE_KEYS = [
  ["W or +, S or −", "zoom in, zoom out"],
  ["A and D, or ← and →", "to earlier, to later"],
  ["↑ and ↓", "to the track above, below; without a selection: scroll"],
  ["[ and ], or Shift with ← and →", "previous event, next event"],
  ["Enter", "select the event in the middle; again: zoom to it"],
  ["L", "from a kernel to its launch, from a call to what it launched"],
  ["/ then Enter", "search, next match; N and Shift+N in the picture: next, previous"],
  ["0, T, Home, End", "everything, typical step, beginning, end"],
  ["Escape", "clear the selection"],
  ["Ctrl + wheel, pinch", "zoom at the pointer"],
  ["drag, Shift + wheel", "move"],
  ["drag on the time axis, or Shift + drag", "zoom to that time span"],
];

/** Search box, zoom buttons and the choice of a rank. `act`: their actions. */
class TimelineToolbar {
  constructor(data, act) {
    this.search = timelineElement("input", {
      type: "search", placeholder: "Search names", "aria-label": "Search names", spellcheck: false, autocomplete: "off",
    });
    this.found = timelineElement("output", { className: "tl-found", "aria-live": "polite" });
    this.seen = timelineElement("span", { className: "tl-seen" });
    this.element = timelineElement(
      "div", { className: "tl-bar", role: "toolbar", "aria-label": "Timeline" },
      timelineElement("span", { className: "tl-search" }, this.search, this.found,
        this.#button("‹", "Previous match", () => act.nextMatch(-1)), this.#button("›", "Next match", () => act.nextMatch(1))),
      timelineElement("span", { className: "tl-zoom" },
        this.#button("−", "Zoom out", () => act.zoom(1 / ZOOM_STEP)), this.#button("+", "Zoom in", () => act.zoom(ZOOM_STEP)),
        ...(data.stepWord ? [this.#button(`Typical ${data.stepWord}`, "", act.showTypical)] : []),
        this.#button("Everything", "", act.showAll)),
      this.#ranks(data, act), this.seen,
    );
    this.#listen(act);
  }

  #listen(act) {
    this.search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => act.lookFor(this.search.value), 120);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") act.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") act.lookFor("");
    });
  }

  #ranks(data, act) {
    if (data.ranks.length < 2) return null;
    const options = data.ranks.map((rank) => timelineElement("option", { value: String(rank), textContent: `rank ${rank}` }));
    const all = timelineElement("option", { value: "", textContent: "all ranks" });
    this.rank = timelineElement("select", { "aria-label": "Ranks shown" }, all, ...options);
    this.rank.addEventListener("change", () => act.showRank(this.rank.value === "" ? null : Number(this.rank.value)));
    return this.rank;
  }

  #button(label, title, onclick) {
    return timelineElement("button", { type: "button", textContent: label, onclick, ...(title ? { title, "aria-label": title } : {}) });
  }
}

/** The colours of idle causes, and the meaning of hatching. */
function timelineLegend(data) {
  const causes = new Set(data.tracks.filter((track) => track.kind === "idle").flatMap((track) => [...new Set(track.name)]));
  const known = Object.keys(timelineCauses).filter((cause) => [...causes].some((name) => data.names[name] === cause));
  const item = (swatch, words) => timelineElement("li", {}, timelineElement("span", { className: `swatch ${swatch}` }), words);
  const items = known.map((cause) => item(`p-${cause}`, idleWords(cause)));
  items.push(item("tl-hatched", "many short events merged; the height is their busy share"));
  return timelineElement("ul", { className: "tl-legend" }, ...items);
}

function timelineKeys() {
  const summary = timelineElement("summary", { textContent: "Keys and mouse" });
  return timelineElement("details", { className: "tl-keys" }, summary, timelineTerms(TIMELINE_KEYS));
}

/** What is shown first, and which events are merged. */
function timelineFirstWords(data) {
  const steps = data.stepsOf(data.ranks[0]);
  const isAll = data.typical[0] <= 0 && data.typical[1] >= data.length;
  const some = steps?.size > 1 ? `a typical step of ${inWords(steps.size, "count")}` : steps ? "the step" : "a part of the recording";
  const first = `Shown first: ${isAll ? "everything" : some}.`;
  const { alone, together } = data.thinned();
  const lost = data.piecesInAll - alone - together;
  const kept = lost > 0 ? `${inWords(lost, "count")} are omitted` : "none is omitted";
  if (!together && lost <= 0) return `${first} All ${inWords(alone, "count")} recorded events are drawn.`;
  const drawn = `${inWords(alone, "count")} of ${inWords(data.piecesInAll, "count")} recorded events are drawn one by one`;
  return `${first} ${drawn}; ${inWords(together, "count")} short ones are merged (hatched), ${kept}.`;
}

/** Labels of groups and tracks, as elements over the picture: for screen readers, and to fold by mouse or key. */
class TimelineLabels {
  constructor(data, layout, onFold) {
    this.layout = layout;
    this.element = timelineElement("div", { className: "tl-labels" });
    this.groups = data.groups.map((group, index) => this.#foldable("tl-group", group.title, () => {
      layout.folded[index] = !layout.folded[index];
      onFold();
    }));
    this.tracks = data.tracks.map((track) => {
      if (track.rows < 2) return timelineElement("span", { className: "tl-track", title: track.title }, ...this.#titleParts(track.title));
      return this.#foldable("tl-track", track.title, () => {
        layout.thin[track.place] = !layout.thin[track.place];
        onFold();
      });
    });
    this.element.append(...this.groups, ...this.tracks);
  }

  place() {
    const { layout, element } = this;
    element.style.height = `${layout.height}px`;
    for (const label of [...this.groups, ...this.tracks]) label.hidden = true;
    for (const { index, y, folded } of layout.groups) this.#put(this.groups[index], y, !folded);
    for (const { track, labelY, thin } of layout.tracks) this.#put(this.tracks[track.place], labelY, !thin);
  }

  #put(label, y, isOpen) {
    label.hidden = false;
    label.style.top = `${y}px`;
    if (label.tagName === "BUTTON") label.setAttribute("aria-expanded", String(isOpen));
  }

  #foldable(className, title, onclick) {
    return timelineElement("button", { type: "button", className, title, onclick }, ...this.#titleParts(title));
  }

  /** A long title is shortened in its middle: its last part is the kind of track. */
  #titleParts(title) {
    const at = title.lastIndexOf(" · ");
    const parts = at < 0 ? [title] : [title.slice(0, at), title.slice(at)];
    return parts.map((part) => timelineElement("span", { textContent: part }));
  }
}
