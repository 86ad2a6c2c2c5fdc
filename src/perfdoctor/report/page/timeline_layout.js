// How high is each track, and where? Groups fold to a strip, deep tracks to thin rows; nothing disappears.

const ROW_PX = { step: 20, idle: 16, counter: 44 };
const USUAL_ROW_PX = 18;
const THIN_ROW_PX = 5;
const GROUP_PX = 26;
const LABEL_PX = 17;
const TRACK_GAP_PX = 6;
const STRIP_PX = 6;
/** A host thread may nest fifty rows deep: such a track starts with thin rows, and unfolds on a click. */
const ROWS_AT_ONCE = 8;
/** With more groups than this, only the first rank starts unfolded. */
const GROUPS_AT_ONCE = 4;
/** What a folded group shows, most important first. */
const STRIP_KINDS = ["kernels", "idle", "collectives", "copies", "ops", "calls", "functions", "ranges"];
const STRIPS = 3;

/** The places of groups and tracks, in pixels from the top of the picture. */
class TimelineLayout {
  constructor(data) {
    this.data = data;
    this.rank = null;
    this.narrow = false;
    const first = data.ranks[0];
    const many = data.groups.length > GROUPS_AT_ONCE;
    this.folded = data.groups.map((group) => many && group.rank !== first);
    this.thin = data.tracks.map((track) => track.rows > ROWS_AT_ONCE);
    this.place();
  }

  /** Computes all places, after folding, filtering, or a change to a narrow page. */
  place() {
    this.groups = [];
    this.tracks = [];
    let y = 0;
    this.data.groups.forEach((group, index) => {
      if (this.rank !== null && group.rank !== this.rank) return;
      const tracks = this.data.tracks.filter((track) => track.group === index && track.size > 0);
      if (tracks.length === 0) return;
      y = this.#placeGroup(index, tracks, y);
    });
    this.height = y;
  }

  /** The lane at a height: {track, lane, y, height}, or null. */
  laneAt(y) {
    const item = this.tracks.find((each) => y >= each.y && y < each.y + each.height);
    if (!item) return null;
    if (item.track.isCounter) return { ...item, lane: null };
    const row = Math.min(Math.max(Math.floor((y - item.y) / item.rowPx), 0), item.track.rows - 1);
    return { track: item.track, lane: item.track.lanes()[row], y: item.y + row * item.rowPx, height: item.rowPx };
  }

  /** Where a row of a track is drawn: {y, height}; the header if its group is folded. */
  rowAt(track, row) {
    const item = this.tracks.find((each) => each.track === track);
    if (item) return { y: item.y + row * item.rowPx, height: item.rowPx };
    const group = this.groups.find((each) => each.index === track.group);
    return group ? { y: group.y, height: GROUP_PX } : null;
  }

  /** Makes a track visible: removes a filter of ranks, and unfolds its group. */
  open(track) {
    if (this.rank !== null && this.data.rankOf(track) !== this.rank) this.rank = null;
    this.folded[track.group] = false;
    this.place();
  }

  #placeGroup(index, tracks, top) {
    const folded = this.folded[index];
    const strips = folded ? this.#strips(tracks) : [];
    const stripsY = top + (this.narrow ? GROUP_PX : (GROUP_PX - strips.length * (STRIP_PX + 1)) / 2);
    let y = top + GROUP_PX + (folded && this.narrow ? strips.length * (STRIP_PX + 1) + TRACK_GAP_PX : 0);
    strips.forEach((strip, place) => {
      strip.y = stripsY + place * (STRIP_PX + 1);
    });
    this.groups.push({ index, y: top, folded, strips });
    for (const track of folded ? [] : tracks) y = this.#placeTrack(track, y);
    return folded ? y : y + TRACK_GAP_PX;
  }

  #placeTrack(track, top) {
    const thin = this.thin[track.place] && track.rows > 1;
    const rowPx = thin ? THIN_ROW_PX : ROW_PX[track.kind] || USUAL_ROW_PX;
    const y = top + (this.narrow ? LABEL_PX : 0);
    // A thin track is as high as its label, so that labels do not overlap.
    const height = Math.max(rowPx * track.rows, USUAL_ROW_PX);
    this.tracks.push({ track, labelY: top, y, height, rowPx, thin });
    return y + height + TRACK_GAP_PX;
  }

  #strips(tracks) {
    const chosen = STRIP_KINDS.flatMap((kind) => tracks.filter((track) => track.kind === kind)).slice(0, STRIPS);
    return (chosen.length ? chosen : tracks.filter((track) => !track.isCounter).slice(0, STRIPS)).map((track) => ({ track }));
  }
}
