// Where is each piece in time? The view's columns as typed arrays, divided into lanes that can be drawn at any zoom.
//
// A piece is one event, or several short ones merged: its `count` is then more than 1, and `busy` their summed duration.

/** Columns that a track omits because every piece has this default. */
const TRACK_DEFAULTS = { row: 0, count: 1, launch_track: -1, launch: 0, detail: -1 };

/** First index in ascending `numbers` that is greater than `limit`, searched from `from` on. */
function placeAfter(numbers, limit, from = 0, to = numbers.length) {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The same, faster for an index near `from`: steps double until they are too far. */
function placeAfterNear(numbers, limit, from, to) {
  let reach = 1;
  while (from + reach < to && numbers[from + reach] <= limit) reach *= 2;
  return placeAfter(numbers, limit, from + (reach >>> 1), Math.min(from + reach, to));
}

/**
 * One row of a track: its pieces by start, and sums up to each piece. Two sums give the busy time of any time span, so
 * that a pixel's load is exact at every zoom and costs one search, however many pieces it contains.
 */
class TimelineLane {
  constructor(track, row, places) {
    this.track = track;
    this.row = row;
    this.places = places;
    this.size = places ? places.length : track.size;
    this.start = places ? Float64Array.from(places, (place) => track.start[place]) : track.start;
    this.end = new Float64Array(this.size);
    this.reach = this.end;
    this.busyBefore = new Float64Array(this.size + 1);
    this.countBefore = new Float64Array(this.size + 1);
    this.matches = null;
    this.#sum();
  }

  /** The piece's index in its track. */
  piece(index) {
    return this.places ? this.places[index] : index;
  }

  /** The index in the lane of a piece of the track. */
  indexOf(piece) {
    return this.places ? placeAfter(this.places, piece) - 1 : piece;
  }

  /** The first piece that ends after `time`. */
  firstAfter(time) {
    return placeAfter(this.reach, time);
  }

  /** The piece that covers `time`, the last to start if several do; -1 if none does. */
  at(time) {
    const after = placeAfter(this.start, time);
    for (let index = after - 1; index >= 0 && this.reach[index] > time; index--) {
      if (this.end[index] > time) return index;
    }
    return -1;
  }

  /** The piece that covers `time`, or the nearest one. */
  nearest(time) {
    const covers = this.at(time);
    if (covers >= 0) return covers;
    const after = Math.min(placeAfter(this.start, time), this.size - 1);
    const before = Math.max(after - 1, 0);
    return time - this.end[before] < this.start[after] - time ? before : after;
  }

  /** Sums of the busy time of each name, for a lane whose names are colours. */
  byName() {
    if (!this.sums) this.sums = this.#sumByName();
    return this.sums;
  }

  #sum() {
    const { track } = this;
    let latest = -Infinity;
    for (let index = 0; index < this.size; index++) {
      const piece = this.piece(index);
      this.end[index] = this.start[index] + track.duration[piece];
      this.busyBefore[index + 1] = this.busyBefore[index] + track.busy[piece];
      this.countBefore[index + 1] = this.countBefore[index] + track.count[piece];
      if (this.end[index] < latest && this.reach === this.end) this.reach = this.end.slice();
      latest = Math.max(latest, this.end[index]);
      this.reach[index] = latest;
    }
    this.overlaps = this.reach !== this.end;
  }

  #sumByName() {
    const sums = new Map();
    for (let index = 0; index < this.size; index++) {
      const name = this.track.name[this.piece(index)];
      if (!sums.has(name)) sums.set(name, new Float64Array(this.size + 1));
    }
    for (const [name, before] of sums) {
      for (let index = 0; index < this.size; index++) {
        const piece = this.piece(index);
        before[index + 1] = before[index] + (this.track.name[piece] === name ? this.track.busy[piece] : 0);
      }
    }
    return sums;
  }
}

/** One track of the view; its lanes are made when they are first drawn. */
class TimelineTrack {
  constructor(given, place) {
    this.place = place;
    this.group = given.group;
    this.kind = given.kind;
    this.title = given.title;
    this.unit = given.unit || "count";
    this.rows = Math.max(given.rows || 1, 1);
    this.size = given.start.length;
    this.start = new Float64Array(given.start);
    for (let piece = 1; piece < this.size; piece++) this.start[piece] += this.start[piece - 1];
    this.duration = new Float64Array(given.duration || this.size);
    this.name = new Uint32Array(given.name || this.size);
    this.busy = given.busy ? new Float64Array(given.busy) : this.duration;
    for (const [column, usual] of Object.entries(TRACK_DEFAULTS)) {
      this[column] = given[column] ? new Float64Array(given[column]) : new Float64Array(this.size).fill(usual);
    }
    // Null would become 0 in an array of numbers: unknown is NaN.
    this.values = given.values ? Float64Array.from(given.values, (value) => value ?? NaN) : null;
  }

  get isCounter() {
    return this.kind === "counter";
  }

  lanes() {
    if (!this.cut) this.cut = this.#cut();
    return this.cut;
  }

  laneOf(piece) {
    return this.lanes()[this.row[piece]];
  }

  end(piece) {
    return this.start[piece] + this.duration[piece];
  }

  /** When the host launched the piece; NaN where unknown. */
  launchedAt(piece) {
    return this.launch_track[piece] < 0 ? NaN : this.start[piece] - this.launch[piece];
  }

  /** The innermost piece that covers `time`; -1 if none does. */
  innermostAt(time) {
    for (const lane of [...this.lanes()].reverse()) {
      const index = lane.at(time);
      if (index >= 0) return lane.piece(index);
    }
    return -1;
  }

  #cut() {
    if (this.rows === 1) return [new TimelineLane(this, 0, null)];
    const sizes = new Uint32Array(this.rows);
    for (const row of this.row) sizes[row] += 1;
    const places = Array.from(sizes, (size) => new Uint32Array(size));
    const filled = new Uint32Array(this.rows);
    this.row.forEach((row, piece) => {
      places[row][filled[row]] = piece;
      filled[row] += 1;
    });
    return places.map((these, row) => new TimelineLane(this, row, these));
  }
}

/** The whole view: names, groups, tracks, and the relations between them. */
class TimelineData {
  constructor(view) {
    this.length = Math.max(view.length, 1);
    this.typical = view.typical;
    this.whole = view.whole || [];
    this.names = view.names;
    this.groups = view.groups;
    this.tracks = view.tracks.map((track, place) => new TimelineTrack(track, place));
    this.piecesInAll = view.pieces_in_all;
    this.ranks = [...new Set(this.groups.map((group) => group.rank))].sort((one, other) => one - other);
  }

  rankOf(track) {
    return this.groups[track.group].rank;
  }

  nameOf(track, piece) {
    return this.names[track.name[piece]];
  }

  detailOf(track, piece) {
    return track.detail[piece] < 0 ? "" : this.names[track.detail[piece]];
  }

  /** The steps of a rank, as a track; undefined if there are none. */
  stepsOf(rank) {
    return this.tracks.find((track) => track.kind === "step" && this.rankOf(track) === rank && track.size > 0);
  }

  /** What one of the steps is called: step, iteration, execution; "" if there are none. */
  get stepWord() {
    const steps = this.tracks.find((track) => track.kind === "step" && track.size > 0);
    return steps ? this.nameOf(steps, 0).split(" ")[0] : "";
  }

  /** The step of the piece's rank in which it starts: {name, start, duration}, or null. */
  stepAt(rank, time) {
    const steps = this.stepsOf(rank);
    const piece = steps ? steps.innermostAt(time) : -1;
    if (piece < 0) return null;
    return { name: this.nameOf(steps, piece), start: steps.start[piece], duration: steps.duration[piece] };
  }

  /** The piece that launched this one: {track, piece}; piece -1 where its call was not recorded. */
  launchOf(track, piece) {
    const launcher = this.tracks[track.launch_track[piece]];
    return launcher ? { track: launcher, piece: launcher.innermostAt(track.launchedAt(piece)) } : null;
  }

  /** What was launched while this piece ran: up to `most` of {track, piece}, and the total number. */
  launchedBy(track, piece, most) {
    const asked = this.#askedFrom(track.place);
    const first = placeAfter(asked.time, track.start[piece] - 1);
    const last = placeAfter(asked.time, track.end(piece) - 1);
    const found = [];
    for (let index = first; index < last && found.length < most; index++) found.push(asked.pieces[index]);
    return { found, inAll: last - first };
  }

  /** How many events (and values of counters) are drawn one by one, and how many are merged. */
  thinned() {
    let alone = 0;
    let together = 0;
    for (const track of this.tracks) {
      for (const count of track.count) {
        if (count > 1) together += count;
        else alone += 1;
      }
    }
    return { alone, together };
  }

  #askedFrom(place) {
    if (!this.asked) this.asked = new Map();
    if (!this.asked.has(place)) this.asked.set(place, this.#collectAsked(place));
    return this.asked.get(place);
  }

  #collectAsked(place) {
    const pieces = [];
    for (const track of this.tracks) {
      if (!track.launch_track.includes(place)) continue;
      for (let piece = 0; piece < track.size; piece++) {
        if (track.launch_track[piece] === place) pieces.push({ track, piece, time: track.launchedAt(piece) });
      }
    }
    pieces.sort((one, other) => one.time - other.time);
    return { pieces, time: Float64Array.from(pieces, (each) => each.time) };
  }
}
