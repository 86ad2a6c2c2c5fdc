// How are 200,000 pieces drawn in one frame? Pieces of a pixel or more one by one, all others as the busy share of each
// pixel column, directly into image memory.

const PIECE_FONT_PX = 11;
/** Narrower pieces have no room for a name. */
const NAMED_FROM_PX = 38;
const NAMED_FROM_HEIGHT_PX = 14;
const GAP_FROM_PX = 4;
const MARKER_PX = 3;
const STRIPED_FROM_PX = 3;
const EDGES_AT_MOST = 80;

/** Draws the tracks of one window of time. `view`: {start, end, left, width, top, height}, in ns and pixels. */
class TimelinePainter {
  constructor(data, colours) {
    this.data = data;
    this.colours = colours;
    this.raster = new TimelineRaster();
    this.texts = [];
    this.shortNames = new Map();
  }

  /** One frame of pieces; those that `search` does not match are dimmed. */
  draw(context, view, layout, search) {
    this.view = view;
    this.search = search;
    this.scale = (view.width - view.left) / (view.end - view.start);
    this.texts.length = 0;
    this.raster.begin(context, view.left, this.colours.paperPixel);
    this.#grid(layout);
    for (const group of layout.groups) this.#strips(group);
    const shown = layout.tracks.filter((item) => this.#isShown(item.y, item.height));
    for (const item of shown) {
      if (item.track.isCounter) this.#counter(item);
      else this.#track(item);
    }
    this.raster.end(context);
    this.#names(context);
  }

  x(time) {
    return this.view.left + (time - this.view.start) * this.scale;
  }

  #isShown(y, height) {
    return y + height > this.view.top && y < this.view.top + this.view.height;
  }

  /** Below everything: lines between groups, and at the starts of steps. */
  #grid(layout) {
    const { view, colours } = this;
    for (const group of layout.groups) this.raster.rect(colours.linePixel, view.left, group.y - view.top, view.width, 1);
    const steps = this.data.stepsOf(layout.rank === null ? this.data.ranks[0] : layout.rank);
    if (!steps) return;
    const from = placeAfter(steps.start, view.start);
    const to = placeAfter(steps.start, view.end);
    if (to - from > EDGES_AT_MOST) return;
    for (let step = from; step < to; step++) this.raster.rect(colours.linePixel, this.x(steps.start[step]), 0, 1, view.height);
  }

  #rect(fill, x, y, width, height) {
    this.raster.rect(this.colours.fills[fill], x, y, width, height);
  }

  #strips(group) {
    for (const strip of group.strips) {
      if (!this.#isShown(strip.y, STRIP_PX)) continue;
      if (strip.track.isCounter) continue;
      this.#lane(strip.track.lanes()[0], strip.y - this.view.top, STRIP_PX);
    }
  }

  #track(item) {
    item.track.lanes().forEach((lane, row) => {
      const y = item.y + row * item.rowPx;
      if (this.#isShown(y, item.rowPx)) this.#lane(lane, y - this.view.top, item.rowPx - (item.rowPx > 6 ? 2 : 1));
    });
  }

  #lane(lane, y, height) {
    const { start, end, size } = lane;
    const matches = this.search.matchesIn(lane);
    let index = lane.firstAfter(this.view.start);
    this.spilt = 0;
    while (index < size && start[index] < this.view.end) {
      const width = (end[index] - start[index]) * this.scale;
      if (width >= 1) {
        this.raster.endColumns(y, height);
        this.#piece(lane, index, width, y, height, matches);
        index += 1;
      } else index = this.#column(lane, index, y, height, matches);
    }
    this.raster.endColumns(y, height);
  }

  #piece(lane, index, width, y, height, matches) {
    const { view, colours } = this;
    const { track } = lane;
    const piece = lane.piece(index);
    const isMatch = !matches || matches[index + 1] > matches[index];
    const fill = colours.of(track, piece) + (isMatch ? 0 : DIM);
    const from = Math.max(this.x(lane.start[index]), view.left - 2);
    const to = Math.min(this.x(lane.end[index]), view.width + 2);
    const drawn = to - from - (width >= GAP_FROM_PX ? 1 : 0);
    if (track.count[piece] > 1) this.#density(fill, from, drawn, y, height, track.busy[piece] / track.duration[piece]);
    else this.#rect(fill, from, y, drawn, height);
    if (matches && isMatch) this.#marker(from, drawn, y);
    if (drawn >= NAMED_FROM_PX && height >= NAMED_FROM_HEIGHT_PX) {
      const ink = track.count[piece] > 1 ? fill + PALE : fill;
      this.texts.push({ track, piece, from: Math.max(from, view.left), to: from + drawn, y: y + height / 2, ink });
    }
  }

  /** Merged events: as high as their busy share, on a pale background of the same colour. */
  #density(fill, x, width, y, height, share) {
    const level = Math.max(Math.min(share, 1) * height, 1);
    this.#rect(fill + PALE, x, y, width, height);
    this.raster.rect(this.colours.fills[fill], x, y + height - level, width, level, width >= STRIPED_FROM_PX);
  }

  /** Everything that starts within one pixel column; returns the first piece after it. */
  #column(lane, index, y, height, matches) {
    const { view, scale } = this;
    const column = Math.floor((lane.start[index] - view.start) * scale);
    const until = view.start + (column + 1) / scale;
    const next = this.#columnEnd(lane, index, until);
    const last = next - 1;
    const spill = Math.max(lane.end[last] - until, 0) * scale;
    const before = this.spiltInto === column ? this.spilt : 0;
    const x = view.left + column;
    const isMatch = !matches || matches[next] > matches[index];
    if (lane.track.kind === "idle") this.#levels(lane, index, next, x, y, height, isMatch);
    else {
      const busy = (lane.busyBefore[next] - lane.busyBefore[index]) * scale + before - spill;
      this.#level(lane.track, x, y, height, busy, isMatch);
    }
    if (matches && isMatch) this.#marker(x, 1, y);
    this.spilt = spill;
    this.spiltInto = column + 1;
    return next;
  }

  /** A column ends before the first piece that is wide enough to be drawn itself. */
  #columnEnd(lane, index, until) {
    const next = Math.max(placeAfterNear(lane.start, until, index, lane.size), index + 1);
    let wide = lane.overlaps ? index + 1 : next - 1;
    while (wide < next && (lane.end[wide] - lane.start[wide]) * this.scale < 1) wide += 1;
    return wide > index ? wide : next;
  }

  /** As high as the column's busy share, and at least a pixel, so that everything is visible. */
  #level(track, x, y, height, share, isMatch) {
    const fill = this.colours.ofTrack(track) + (isMatch ? 0 : DIM);
    const { fills } = this.colours;
    this.raster.column(x, Math.max(Math.min(share, 1) * height, 1), fills[fill], fills[fill + PALE], y, height);
  }

  /** The same with a colour for each name, stacked. */
  #levels(lane, index, next, x, y, height, isMatch) {
    const dim = isMatch ? 0 : DIM;
    let bottom = y + height;
    this.#rect(this.colours.ofTrack(lane.track) + PALE + dim, x, y, 1, height);
    for (const [name, before] of lane.byName()) {
      const busy = Math.min((before[next] - before[index]) * this.scale, 1);
      if (busy <= 0 || bottom <= y) continue;
      const level = Math.min(Math.max(Math.round(busy * height), 1), bottom - y);
      bottom -= level;
      this.#rect(this.colours.ofCause(name) + dim, x, bottom, 1, level);
    }
  }

  #marker(x, width, y) {
    this.raster.rect(this.colours.inkPixel, x, y - 1, Math.max(width, 1), MARKER_PX);
  }

  #names(context) {
    context.font = `${PIECE_FONT_PX}px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    context.textBaseline = "middle";
    if (!this.letterPx) this.letterPx = context.measureText("0").width;
    for (const { track, piece, from, to, y, ink } of this.texts) {
      const room = Math.floor((to - from - 8) / this.letterPx);
      if (room < 3) continue;
      const text = track.count[piece] > 1 ? `${count(track.count[piece])} events` : this.shortName(track, piece);
      context.fillStyle = this.colours.inks[ink];
      // Characters of other scripts may be wider: the last argument limits the width.
      context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, from + 4, y + 0.5, to - from - 6);
    }
  }

  /** A kernel without return type, namespaces and template arguments; other names unchanged. */
  shortName(track, piece) {
    const name = track.name[piece];
    if (track.kind === "idle") return idleWords(this.data.names[name]).replace(/^idle: /, ""); // as its track is called "idle by cause"
    if (track.kind !== "kernels") return this.data.names[name];
    if (!this.shortNames.has(name)) this.shortNames.set(name, shortKernelName(this.data.names[name]));
    return this.shortNames.get(name);
  }

  /** Numbers over time as steps; in a column with many, the range from the smallest to the largest. */
  #counter(item) {
    const { track } = item;
    const { low, high } = counterRange(track);
    const bottom = item.y - this.view.top + item.height;
    const level = (value) => bottom - ((value - low) / (high - low || 1)) * (item.height - 4);
    const fill = this.colours.ofTrack(track);
    let index = Math.max(placeAfter(track.start, this.view.start) - 1, 0);
    while (index < track.size && track.start[index] < this.view.end) {
      const from = Math.max(this.x(track.start[index]), this.view.left);
      const until = this.view.start + (Math.floor(from - this.view.left) + 1) / this.scale;
      const next = Math.max(placeAfterNear(track.start, until, index, track.size), index + 1);
      const width = Math.min(next < track.size ? this.x(track.start[next]) : this.view.width, this.view.width) - from;
      const { least, most } = rangeOf(track.values, index, next);
      if (least <= most) {
        this.#rect(fill + PALE, from, level(most), width, bottom - level(most));
        this.#rect(fill, from, level(most) - 0.5, width, Math.max(level(least) - level(most), 2));
      }
      index = next;
    }
  }
}

/** The lowest and highest of some of the values; least > most where none is known. */
function rangeOf(values, from, to) {
  let least = Infinity;
  let most = -Infinity;
  for (let index = from; index < to; index++) {
    if (values[index] < least) least = values[index];
    if (values[index] > most) most = values[index];
  }
  return { least, most };
}

/** The range of a counter's height: it includes 0. */
function counterRange(track) {
  if (!track.range) {
    const { least, most } = rangeOf(track.values, 0, track.size);
    track.range = { low: Math.min(least, 0), high: Math.max(most, 0) };
  }
  return track.range;
}

function shortKernelName(name) {
  let depth = 0;
  let bare = "";
  for (const letter of name) {
    if (letter === "<" || letter === "(") depth += 1;
    if (depth === 0) bare += letter;
    if (letter === ">" || letter === ")") depth -= 1;
  }
  return bare.trim().split(/::|\s/).filter(Boolean).pop() || name;
}
