// The axis above the tracks: the visible part of the whole, time since the start of the window, and of the step.

const AXIS_PX = 50;
const TICK_EVERY_PX = 110;
const AXIS_FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const OVERVIEW_PX = 7;
const WINDOW_ROW_PX = 21;
const STEP_ROW_PX = 41;

/** The smallest of 1, 2, 5, 10, … ns with room for a label at each tick. */
function tickNs(nsPerPx) {
  const least = Math.max(nsPerPx * TICK_EVERY_PX, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((ns) => ns >= least * 0.999);
}

/** A tick's time with enough digits to distinguish it from its neighbour. */
function tickWords(ns, everyNs) {
  if (ns === 0) return "0";
  const [size, unit] = SECONDS.findLast(([each]) => Math.abs(ns) >= each * 0.9995) || SECONDS[0];
  const digits = Math.max(Math.ceil(Math.log10(size) - Math.log10(everyNs) - 1e-9), 0);
  return `${(ns / size).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

class TimelineAxis {
  constructor(data, colours) {
    this.data = data;
    this.colours = colours;
  }

  /** `view` as for the pieces; `rank`: whose steps are shown; `state.marked`: the highlighted span. */
  draw(context, view, rank, state) {
    context.clearRect(0, 0, view.width, AXIS_PX);
    context.font = AXIS_FONT;
    context.textBaseline = "middle";
    this.#overview(context, view, state);
    const nsPerPx = (view.end - view.start) / (view.width - view.left);
    const everyNs = tickNs(nsPerPx);
    const base = this.#base(view, everyNs);
    this.#said(context, base ? `${tickWords(base, everyNs * 1000)} +` : "", view.left, WINDOW_ROW_PX);
    this.#ticks(context, view, { from: view.start, to: view.end, base, everyNs, y: WINDOW_ROW_PX });
    context.fillStyle = this.colours.line;
    context.fillRect(0, AXIS_PX - 1, view.width, 1);
    this.#steps(context, view, rank, everyNs);
  }

  /** Far from the start, ticks count from a round time that is shown to their left, so that they need few digits. */
  #base(view, everyNs) {
    const coarseNs = everyNs * 1000;
    return view.start >= coarseNs * 10 ? Math.floor(view.start / coarseNs) * coarseNs : 0;
  }

  #x(time, view) {
    return view.left + ((time - view.start) * (view.width - view.left)) / (view.end - view.start);
  }

  #overview(context, view, { marked }) {
    const px = (time) => view.left + (time / this.data.length) * (view.width - view.left);
    context.fillStyle = this.colours.line;
    context.fillRect(view.left, 0, view.width - view.left, OVERVIEW_PX);
    context.fillStyle = this.colours.soft;
    context.fillRect(px(view.start), 0, Math.max(px(view.end) - px(view.start), 3), OVERVIEW_PX);
    if (!marked) return;
    context.fillStyle = this.colours.link;
    context.fillRect(px(marked.start) - 1, 0, Math.max(px(marked.end) - px(marked.start), 3), OVERVIEW_PX);
  }

  #ticks(context, view, { from, to, base, everyNs, y }) {
    let freeFrom = view.left;
    for (let tick = Math.ceil((from - base) / everyNs); base + tick * everyNs <= to; tick++) {
      const x = this.#x(base + tick * everyNs, view);
      const words = (base && tick > 0 ? "+" : "") + tickWords(tick * everyNs, everyNs);
      const width = context.measureText(words).width;
      context.fillStyle = this.colours.line;
      context.fillRect(Math.round(x), y - 8, 1, 16);
      if (x + 4 < freeFrom || x + 4 + width > view.width) continue;
      context.fillStyle = this.colours.soft;
      context.fillText(words, x + 4, y);
      freeFrom = x + width + 12;
    }
  }

  /** The second row: each visible step by name, with ticks from its own start where it is wide enough. */
  #steps(context, view, rank, everyNs) {
    const steps = this.data.stepsOf(rank);
    if (!steps) return;
    this.#said(context, `in the ${this.data.stepWord}`, view.left, STEP_ROW_PX);
    context.save();
    context.beginPath();
    context.rect(view.left, 0, view.width - view.left, AXIS_PX);
    context.clip();
    const first = Math.max(placeAfter(steps.start, view.start) - 1, 0);
    for (let piece = first; piece < steps.size && steps.start[piece] < view.end; piece++) {
      const from = Math.max(this.#x(steps.start[piece], view), view.left);
      const to = Math.min(this.#x(steps.end(piece), view), view.width);
      if (to - from < 40) continue;
      this.#step(context, view, steps, piece, { from, to, everyNs });
    }
    context.restore();
  }

  #step(context, view, steps, piece, { from, to, everyNs }) {
    const name = this.data.nameOf(steps, piece);
    const width = context.measureText(name).width;
    const start = steps.start[piece];
    const room = Math.min(width + 14, to - from);
    if (to - from > width + 8) {
      context.fillStyle = this.colours.ink;
      context.fillText(name, from + 4, STEP_ROW_PX);
    }
    const firstNs = view.start + ((from + room - view.left) * (view.end - view.start)) / (view.width - view.left);
    const tick = Math.ceil((firstNs - start) / everyNs);
    for (let each = Math.max(tick, 1); ; each++) {
      const x = this.#x(start + each * everyNs, view);
      const words = `+${tickWords(each * everyNs, everyNs)}`;
      if (x + 4 + context.measureText(words).width > to) return;
      context.fillStyle = this.colours.line;
      context.fillRect(Math.round(x), STEP_ROW_PX - 6, 1, 12);
      context.fillStyle = this.colours.soft;
      context.fillText(words, x + 4, STEP_ROW_PX);
    }
  }

  /** Text left of the first tick, above the labels of tracks; none on a narrow page. */
  #said(context, words, left, y) {
    if (left < 100 || !words) return;
    context.fillStyle = this.colours.soft;
    context.textAlign = "right";
    context.fillText(words, left - 8, y);
    context.textAlign = "left";
  }
}
