// Which pieces match a search? Names and details that contain a text; counted immediately, sorted when first visited.

class TimelineSearch {
  constructor(data) {
    this.data = data;
    this.text = "";
    this.found = null;
    this.total = 0;
    this.asked = 0;
  }

  /** Searches for a text, in one rank or in all (null); "" ends the search. */
  look(text, rank) {
    this.text = text.trim().toLowerCase();
    this.rank = rank;
    this.order = null;
    this.asked += 1;
    this.total = 0;
    this.found = this.text ? Uint8Array.from(this.#haystacks(), (words) => Number(words.includes(this.text))) : null;
    if (this.found) for (const track of this.#tracks()) this.total += this.#matchesOf(track);
  }

  get isOn() {
    return this.found !== null;
  }

  isMatch(track, piece) {
    return this.found[track.name[piece]] === 1 || this.found[track.detail[piece]] === 1;
  }

  /** The number of matches before each piece of a lane; null while there is no search. */
  matchesIn(lane) {
    if (!this.found) return null;
    if (lane.matchesOf !== this.asked) {
      lane.matches = new Uint32Array(lane.size + 1);
      for (let index = 0; index < lane.size; index++) {
        lane.matches[index + 1] = lane.matches[index] + Number(this.isMatch(lane.track, lane.piece(index)));
      }
      lane.matchesOf = this.asked;
    }
    return lane.matches;
  }

  /**
   * The next match in time (`direction` 1) or the one before (-1), wrapping around.
   * `from`: {track, piece} to continue from, or {time}. Returns {track, piece, place}, place counted from 1, or null.
   */
  next(from, direction) {
    if (!this.total) return null;
    if (!this.order) this.order = this.#ordered();
    const { keys, tracks, pieces } = this.order;
    let at = from.track ? this.#placeOf(from) : -1;
    if (at < 0) {
      const after = placeAfter(keys, from.track ? from.track.start[from.piece] : from.time - 1);
      at = direction > 0 ? after - 1 : after;
    }
    const place = (at + direction + this.total) % this.total;
    return { track: this.data.tracks[tracks[place]], piece: pieces[place], place: place + 1 };
  }

  #placeOf({ track, piece }) {
    const { keys, tracks, pieces } = this.order;
    for (let at = placeAfter(keys, track.start[piece]) - 1; at >= 0 && keys[at] === track.start[piece]; at--) {
      if (tracks[at] === track.place && pieces[at] === piece) return at;
    }
    return -1;
  }

  #haystacks() {
    if (!this.haystacks) {
      const causes = new Set(this.data.tracks.filter((track) => track.kind === "idle").flatMap((track) => [...track.name]));
      this.haystacks = this.data.names.map((name, place) => (causes.has(place) ? `${name} ${idleWords(name)}` : name).toLowerCase());
    }
    return this.haystacks;
  }

  #tracks() {
    const { data, rank } = this;
    return data.tracks.filter((track) => !track.isCounter && (rank === null || data.rankOf(track) === rank));
  }

  #matchesOf(track) {
    let matches = 0;
    for (let piece = 0; piece < track.size; piece++) if (this.isMatch(track, piece)) matches += 1;
    return matches;
  }

  #ordered() {
    const starts = new Float64Array(this.total);
    const ofTrack = new Uint32Array(this.total);
    const ofPiece = new Uint32Array(this.total);
    let at = 0;
    for (const track of this.#tracks()) {
      for (let piece = 0; piece < track.size; piece++) {
        if (!this.isMatch(track, piece)) continue;
        starts[at] = track.start[piece];
        ofTrack[at] = track.place;
        ofPiece[at] = piece;
        at += 1;
      }
    }
    const order = Uint32Array.from(starts, (_, place) => place).sort((one, other) => starts[one] - starts[other] || one - other);
    const inOrder = (numbers) => numbers.map((_, place) => numbers[order[place]]);
    return { keys: inOrder(starts), tracks: inOrder(ofTrack), pieces: inOrder(ofPiece) };
  }
}
