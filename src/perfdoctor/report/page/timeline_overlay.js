// What is drawn over the pieces: the highlighted time span, the selection, and arrows from launches.

/** Arrows of a piece's neighbours, if many kernels were launched in its step. */
const NEIGHBOUR_ARROWS = 40;
const ARROW_PX = 5;
/** Closer arrows would merge into one dark stroke. */
const APART_PX = 9;

class TimelineOverlay {
  constructor(data, colours) {
    this.data = data;
    this.colours = colours;
  }

  /** `state`: {marked, selecting, selected, hovered}. */
  drawUpon(context, view, layout, state) {
    for (const span of [state.marked, state.selecting]) if (span) this.#span(context, view, span);
    if (state.hovered) this.#outline(context, view, layout, state.hovered, 1);
    if (!state.selected) return;
    this.#arrows(context, view, layout, state.selected);
    this.#outline(context, view, layout, state.selected, 2);
  }

  /** Where a piece is drawn: {x, y, width, height} in the visible part of the picture; null if its rank is hidden. */
  boxOf({ track, piece }, view, layout) {
    const row = layout.rowAt(track, track.isCounter ? 0 : track.row[piece]);
    if (!row) return null;
    const x = this.#x(track.start[piece], view);
    const width = Math.max(this.#x(track.end(piece), view) - x, 2);
    return { x, y: row.y - view.top, width, height: row.height - (row.height > 6 ? 2 : 1) };
  }

  #x(time, view) {
    return view.left + ((time - view.start) * (view.width - view.left)) / (view.end - view.start);
  }

  #span(context, view, { start, end }) {
    const from = this.#x(start, view);
    const width = Math.max(this.#x(end, view) - from, 1);
    context.fillStyle = this.colours.markFill;
    context.fillRect(from, 0, width, view.height);
    context.fillStyle = this.colours.link;
    context.fillRect(from - 1, 0, 2, view.height);
    context.fillRect(from + width - 1, 0, 2, view.height);
  }

  /** A dark line with a light one around it, visible on every colour. */
  #outline(context, view, layout, chosen, lineWidth) {
    const box = this.boxOf(chosen, view, layout);
    if (!box) return;
    const from = Math.max(box.x, view.left - 4);
    const to = Math.min(box.x + box.width, view.width + 4);
    context.strokeStyle = this.colours.paper;
    context.lineWidth = lineWidth + 2;
    context.strokeRect(from, box.y, to - from, box.height);
    context.strokeStyle = this.colours.ink;
    context.lineWidth = lineWidth;
    context.strokeRect(from, box.y, to - from, box.height);
  }

  #arrows(context, view, layout, { track, piece }) {
    context.strokeStyle = context.fillStyle = this.colours.soft;
    context.lineWidth = 1;
    context.globalAlpha = 0.5;
    for (const neighbour of this.#neighbours(track, piece, view)) this.#arrow(context, view, layout, track, neighbour);
    for (const each of this.data.launchedBy(track, piece, NEIGHBOUR_ARROWS).found) {
      this.#arrow(context, view, layout, each.track, each.piece);
    }
    context.globalAlpha = 1;
    context.strokeStyle = context.fillStyle = this.colours.ink;
    context.lineWidth = 1.75;
    this.#arrow(context, view, layout, track, piece);
  }

  /** Visible pieces of the same track and step, those nearest to this one. */
  #neighbours(track, piece, view) {
    const step = this.data.stepAt(this.data.rankOf(track), track.start[piece]);
    const from = Math.max(view.start, step ? step.start : view.start);
    const to = Math.min(view.end, step ? step.start + step.duration : view.end);
    const first = Math.max(placeAfter(track.start, from), piece - NEIGHBOUR_ARROWS / 2);
    const last = Math.min(placeAfter(track.start, to), piece + NEIGHBOUR_ARROWS / 2);
    const found = [];
    let drawn = -Infinity;
    for (let each = first; each < last; each++) {
      const x = this.#x(track.start[each], view);
      const isApart = x - drawn >= APART_PX && Math.abs(x - this.#x(track.start[piece], view)) >= APART_PX;
      if (!isApart || track.launch_track[each] < 0) continue;
      found.push(each);
      drawn = x;
    }
    return found;
  }

  #arrow(context, view, layout, track, piece) {
    const launch = this.data.launchOf(track, piece);
    if (!launch) return;
    const box = this.boxOf({ track, piece }, view, layout);
    const row = layout.rowAt(launch.track, launch.piece < 0 ? 0 : launch.track.row[launch.piece]);
    if (!box || !row) return;
    const fromX = this.#x(track.launchedAt(piece), view);
    const fromY = row.y - view.top + row.height / 2;
    const toY = box.y + box.height / 2;
    const bend = Math.max(Math.abs(box.x - fromX) / 2, 12);
    context.beginPath();
    context.moveTo(fromX, fromY);
    context.bezierCurveTo(fromX + bend, fromY, box.x - bend, toY, box.x, toY);
    context.stroke();
    context.beginPath();
    context.moveTo(box.x, toY);
    context.lineTo(box.x - ARROW_PX, toY - ARROW_PX * 0.7);
    context.lineTo(box.x - ARROW_PX, toY + ARROW_PX * 0.7);
    context.fill();
  }
}
