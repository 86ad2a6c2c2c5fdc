// The timeline on a canvas. startTimeline(view) fills #timeline-view; showOnTimeline(rank, start, end) goes to a moment.

/** The closest zoom: no recorded event is shorter than a few ns. */
const LEAST_WINDOW_NS = 50;
/** A span that is shown is centred, with this part of its length around it on each side. */
const MARGIN_PART = 0.35;
/** A piece that would be too small to be seen takes this part of the window when one goes to it. */
const FOUND_PART = 0.04;
const SEEN_PX = 3;
/** For printing, the picture is redrawn as wide as a sheet, with all tracks that fit on a page. */
const PAPER = { width: 680, height: 900 };

let timelineShown = null;
let timelineMoment = null;

/** Fills `#timeline-view` with the view, as `TimelineView` of records/views.py was packed. */
function startTimeline(view) {
  const element = document.getElementById("timeline-view");
  if (!element) return;
  timelineCauses = JSON.parse(element.dataset.causes || "{}");
  timelineShown = new Timeline(view, element);
  if (timelineMoment) showOnTimeline(...timelineMoment);
}

/** Goes to a time span of a rank (ns of the window), marks and announces it; later, if the timeline is not ready. */
function showOnTimeline(rank, start, end) {
  timelineMoment = [rank, start, end];
  if (timelineShown) timelineShown.showMoment(rank, start, end);
}

/** The picture with everything around it: the visible time span, and the selection. */
class Timeline {
  constructor(view, element) {
    this.data = new TimelineData(view);
    this.element = element;
    this.layout = new TimelineLayout(this.data);
    this.words = new TimelineWords(this.data);
    this.search = new TimelineSearch(this.data);
    this.selected = this.hovered = this.marked = this.selecting = null;
    this.view = { start: 0, end: this.data.length, left: 0, width: 0, top: 0, height: 0 };
    this.panel = new TimelinePanel(this.data, this.words, this);
    this.toolbar = new TimelineToolbar(this.data, this);
    this.labels = new TimelineLabels(this.data, this.layout, () => this.place());
    this.stage = new TimelineStage(this.labels.element);
    this.colours = new TimelineColours(this.data, element);
    this.painter = new TimelinePainter(this.data, this.colours);
    this.overlay = new TimelineOverlay(this.data, this.colours);
    this.axis = new TimelineAxis(this.data, this.colours);
    this.input = new TimelineInput(this);
    element.replaceChildren(
      timelineElement("p", { className: "tl-shown", textContent: timelineFirstWords(this.data) }),
      this.toolbar.element, this.stage.element, this.panel.element, timelineLegend(this.data), timelineKeys(), this.stage.live,
    );
    this.#watch();
    this.showTypical();
    this.#measure();
  }

  // --- the visible window ---

  /** Zooms by a factor (more than 1: closer) around a moment, or the middle. */
  zoom(times, around = (this.view.start + this.view.end) / 2) {
    const { start, end } = this.view;
    const span = Math.min(Math.max((end - start) / times, LEAST_WINDOW_NS), this.data.length);
    const part = (around - start) / (end - start);
    this.see(around - part * span, around - part * span + span);
  }

  /** Moves by pixels; more than 0: to later times. */
  pan(pixels) {
    const { start, end } = this.view;
    const span = end - start;
    const by = (pixels * span) / (this.view.width - this.view.left || 1);
    const from = Math.min(Math.max(start + by, 0), this.data.length - span);
    this.see(from, from + span);
  }

  /** Shows this window, limited to the recording. */
  see(start, end) {
    const span = Math.min(Math.max(end - start, LEAST_WINDOW_NS), this.data.length);
    const from = Math.min(Math.max(start, 0), this.data.length - span);
    this.view.start = from;
    this.view.end = from + span;
    this.redraw();
  }

  showAll = () => this.see(0, this.data.length);

  showTypical = () => {
    const [start, end] = this.data.typical;
    const margin = (end - start) * 0.02;
    this.see(start - margin, end + margin);
  };

  showMoment(rank, start, end) {
    this.marked = { start, end };
    if (this.layout.rank !== null && this.layout.rank !== rank) this.showRank(rank);
    this.data.groups.forEach((group, index) => {
      if (group.rank === rank) this.layout.folded[index] = false;
    });
    this.place();
    this.#measure();
    const margin = Math.max((end - start) * MARGIN_PART, LEAST_WINDOW_NS);
    this.see(start - margin, end + margin);
    const group = this.layout.groups.find((each) => this.data.groups[each.index].rank === rank);
    if (group) this.stage.scroller.scrollTop = group.y;
    this.say(`Shown: ${inWords(end - start, "ns")} on rank ${rank}, from ${inWords(start, "ns")} of the window.`);
  }

  /** Shows one rank, or all with null. */
  showRank = (rank) => {
    this.layout.rank = rank;
    if (rank !== null) {
      this.data.groups.forEach((group, index) => {
        if (group.rank === rank) this.layout.folded[index] = false;
      });
    }
    if (this.toolbar.rank) this.toolbar.rank.value = rank === null ? "" : String(rank);
    this.place();
    if (this.search.isOn) this.lookFor(this.search.text);
  };

  // --- the selection ---

  select(track, piece) {
    this.selected = { track, piece };
    this.panel.show(track, piece);
    this.say(`${this.words.called(track, piece)}: ${this.words.line(track, piece)}, starts at ${inWords(track.start[piece], "ns")}`);
    this.redraw();
  }

  clear() {
    this.selected = this.marked = this.hovered = null;
    this.panel.clear();
    this.say("Nothing selected");
    this.redraw();
  }

  /** Selects a piece and makes it visible: unfolds, scrolls, moves, and zooms if it is too small to be seen. */
  goTo = (track, piece) => {
    this.layout.open(track);
    this.place();
    if (this.toolbar.rank && this.layout.rank === null) this.toolbar.rank.value = "";
    const { view } = this;
    const start = track.start[piece];
    const duration = Math.max(track.duration[piece], 1);
    const span = view.end - view.start;
    const isSeen = (duration * (view.width - view.left)) / span >= SEEN_PX && duration <= span;
    const wanted = isSeen ? span : Math.max(duration / FOUND_PART, LEAST_WINDOW_NS);
    const isInside = start >= view.start && track.end(piece) <= view.end;
    if (!isSeen || !isInside) this.see(start + duration / 2 - wanted / 2, start + duration / 2 + wanted / 2);
    this.stage.scrollTo(this.layout.rowAt(track, track.row[piece]), this.view);
    this.select(track, piece);
  };

  zoomTo = (track, piece) => {
    const margin = track.duration[piece] * MARGIN_PART;
    this.see(track.start[piece] - margin, track.end(piece) + margin);
  };

  zoomToSelected() {
    if (this.selected) this.zoomTo(this.selected.track, this.selected.piece);
  }

  /** The piece before or after the selected one in its row; without a selection, the one in the middle. */
  step(direction) {
    if (!this.selected) return this.enter();
    const { track, piece } = this.selected;
    const lane = track.laneOf(piece);
    const index = lane.indexOf(piece) + direction;
    if (index >= 0 && index < lane.size) this.goTo(track, lane.piece(index));
    else this.say(direction > 0 ? "The last event of this row" : "The first event of this row");
  }

  /** From the selected piece to the one at the same time in the next row with any; without a selection it scrolls. */
  stepTrack(direction) {
    if (!this.selected) return void (this.stage.scroller.scrollTop += direction * USUAL_ROW_PX * 2);
    const { track, piece } = this.selected;
    const lanes = this.layout.tracks.filter((item) => !item.track.isCounter).flatMap((item) => item.track.lanes());
    const lane = lanes[lanes.indexOf(track.laneOf(piece)) + direction];
    if (!lane) return this.say(direction > 0 ? "The lowest row" : "The highest row");
    const middle = Math.min(Math.max(track.start[piece] + track.duration[piece] / 2, this.view.start), this.view.end);
    return this.goTo(lane.track, lane.piece(lane.nearest(middle)));
  }

  enter() {
    if (this.selected) return this.zoomToSelected();
    const middle = (this.view.start + this.view.end) / 2;
    const item = this.layout.tracks.find((each) => !each.track.isCounter && each.track.kind !== "step") || this.layout.tracks[0];
    if (!item || item.track.isCounter) return this.say("Nothing to select: unfold a group first");
    const lane = item.track.lanes()[0];
    return this.goTo(item.track, lane.piece(lane.nearest(middle)));
  }

  /** From a kernel to its launch, from a call to the first work that it launched. */
  follow() {
    if (!this.selected) return;
    const { track, piece } = this.selected;
    const launch = this.data.launchOf(track, piece);
    const [launched] = this.data.launchedBy(track, piece, 1).found;
    if (launch && launch.piece >= 0) this.goTo(launch.track, launch.piece);
    else if (launched) this.goTo(launched.track, launched.piece);
    else this.say("Its launch was not recorded");
  }

  clickAt(point) {
    const found = timelinePieceAt(this, point);
    this.stage.canvas.focus({ preventScroll: true });
    if (found && !found.track.isCounter) this.select(found.track, found.piece);
    else this.clear();
  }

  hover(point) {
    const found = point && timelinePieceAt(this, point);
    this.stage.canvas.style.cursor = found ? "pointer" : "";
    if (found || this.hovered) this.redraw();
    this.hovered = found;
    if (!found) return this.stage.hideTip();
    const { track, piece, inColumn } = found;
    const value = () => `${inWords(track.values[piece], track.unit)}, ${this.words.where(track)}`;
    const line = track.isCounter ? value() : this.words.line(track, piece);
    const said = inColumn > 1 ? `the longest of ${inWords(inColumn, "count")} events here; ${line}` : line;
    return this.stage.showTip(point, track.isCounter ? "" : this.words.called(track, piece), said, this.view);
  }

  // --- search ---

  lookFor = (text) => {
    clearTimeout(this.toolbar.timer); // search now instead
    if (this.toolbar.search.value !== text) this.toolbar.search.value = text;
    this.search.look(text, this.layout.rank);
    this.toolbar.found.textContent = this.search.isOn ? this.#counted(this.search.total) : "";
    this.redraw();
  };

  nextMatch = (direction) => {
    if (this.toolbar.search.value.trim().toLowerCase() !== this.search.text) this.lookFor(this.toolbar.search.value);
    const match = this.search.next(this.selected || { time: this.view.start }, direction);
    if (!match) return;
    this.goTo(match.track, match.piece);
    this.toolbar.found.textContent = `${inWords(match.place, "count")} of ${inWords(this.search.total, "count")}`;
  };

  #counted(number) {
    return number === 1 ? "1 match" : number ? `${inWords(number, "count")} matches` : "no match";
  }

  // --- a time span drawn with the mouse ---

  selectSpan(one, other) {
    this.selecting = { start: Math.min(one, other), end: Math.max(one, other) };
    this.redraw();
  }

  zoomToSpan() {
    const { start, end } = this.selecting;
    this.selecting = null;
    this.see(start, end);
  }

  timeAt(x) {
    const { start, end, left, width } = this.view;
    return start + ((Math.max(x, left) - left) * (end - start)) / (width - left || 1);
  }

  /** Announces it to screen readers. */
  say(words) {
    this.stage.live.textContent = words;
  }

  /** The middle of a piece in the canvas, {x, y}, for tests and pointers; null if it is not drawn. */
  placeOf(track, piece) {
    const box = this.overlay.boxOf({ track, piece }, this.view, this.layout);
    return box && { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  }

  // --- drawing ---

  /** Draws once at the next frame, however often this is called. */
  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Draws one frame immediately. */
  draw() {
    const { view, stage } = this;
    const { context, axisContext } = stage;
    if (!view.width) return;
    context.save();
    context.beginPath();
    context.rect(view.left, 0, view.width - view.left, view.height);
    context.clip();
    this.painter.draw(context, view, this.layout, this.search);
    this.overlay.drawUpon(context, view, this.layout, this);
    context.restore();
    this.axis.draw(axisContext, view, this.layout.rank === null ? this.data.ranks[0] : this.layout.rank, this);
    this.toolbar.seen.textContent = `${inWords(Math.round(view.end - view.start), "ns")} of ${inWords(this.data.length, "ns")}`;
  }

  #watch() {
    new ResizeObserver(() => this.#measure()).observe(this.stage.element);
    this.stage.scroller.addEventListener("scroll", () => {
      this.view.top = Math.round(this.stage.scroller.scrollTop);
      this.redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
    addEventListener("beforeprint", () => this.#measure(PAPER));
    addEventListener("afterprint", () => this.#measure());
  }

  #recolour() {
    this.colours.read();
    this.redraw();
  }

  /** Computes the layout after folding or filtering. */
  place() {
    this.layout.place();
    this.labels.place();
    this.#measure();
  }

  /** Fits the picture to the page, or to a sheet of paper, for which it is drawn even while hidden. */
  #measure(paper = null) {
    const width = paper ? paper.width : this.stage.width();
    if (!width) return;
    const narrow = width < NARROW_PX;
    if (narrow !== this.layout.narrow || !this.isPlaced) {
      this.isPlaced = true;
      this.layout.narrow = narrow;
      this.element.classList.toggle("tl-narrow", narrow);
      this.layout.place();
      this.labels.place();
    }
    this.stage.fit(this.view, width, this.layout.height, paper);
    this.draw();
  }
}
