// Which elements does the timeline have, how large is its picture, and which piece is at a point?

const GUTTER_PX = 184;
/** On narrower pages labels are above their tracks instead of beside them. */
const NARROW_PX = 620;
/** A higher resolution is not visible, and slower. */
const MOST_PIXEL_RATIO = 2;
/** The picture's height as a share of the window's: it leaves room for the panel, or for a second timeline. */
let timelineHeightPart = 0.62;
const LEAST_HEIGHT_PX = 240;
const TIP_PX = 330;
const TIMELINE_LABEL =
  "Timeline: Enter selects an event, brackets go to the next or the one before, W and S zoom, A and D move. "
  + "All keys are listed below.";

/** The canvases with their scrolling frame, the tooltip, and the line for screen readers. */
class TimelineStage {
  constructor(labels) {
    this.axisCanvas = timelineElement("canvas", { className: "tl-axis", "aria-hidden": "true" });
    this.canvas = timelineElement("canvas", {
      className: "tl-canvas", tabIndex: 0, role: "application", "aria-roledescription": "timeline",
      "aria-label": TIMELINE_LABEL,
    });
    this.live = timelineElement("p", { className: "tl-live", "aria-live": "polite" });
    this.tipName = timelineElement("b");
    this.tipLine = timelineElement("span");
    this.tip = timelineElement("div", { className: "tl-tip", hidden: true, "aria-hidden": "true" }, this.tipName, this.tipLine);
    this.scroller = timelineElement("div", { className: "tl-scroll" }, this.canvas, labels);
    this.element = timelineElement("div", { className: "tl-frame" }, this.axisCanvas, this.scroller, this.tip);
    // Pixels are written by this script in each frame: they stay in memory, not on the graphics card.
    this.context = this.canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    this.axisContext = this.axisCanvas.getContext("2d");
  }

  /** The width available for the picture; 0 while it is hidden. */
  width() {
    return this.element.clientWidth;
  }

  /** Sizes both canvases for tracks of a height, and sets the visible part in `view`. */
  fit(view, width, contentPx, paper) {
    const room = paper ? paper.height : Math.max(Math.round(innerHeight * timelineHeightPart), LEAST_HEIGHT_PX);
    view.height = Math.min(contentPx, room);
    this.scroller.style.height = `${view.height}px`;
    view.width = paper ? width : this.scroller.clientWidth || width;
    view.left = width < NARROW_PX ? 0 : GUTTER_PX;
    view.top = Math.round(this.scroller.scrollTop);
    this.#size(this.canvas, this.context, view.width, view.height);
    this.#size(this.axisCanvas, this.axisContext, view.width, AXIS_PX);
  }

  /** Scrolls until a row is visible. */
  scrollTo(row, view) {
    if (row && (row.y < view.top || row.y + row.height > view.top + view.height)) this.scroller.scrollTop = row.y - view.height / 2;
    view.top = Math.round(this.scroller.scrollTop);
  }

  showTip(point, name, line, view) {
    this.tip.hidden = false;
    this.tipName.textContent = name;
    this.tipLine.textContent = line;
    const besides = point.x + TIP_PX + 14 > view.width ? Math.max(point.x - TIP_PX, 4) : point.x + 14;
    this.tip.style.transform = `translate(${besides}px, ${point.y + AXIS_PX + 18}px)`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  #size(canvas, context, width, height) {
    const ratio = Math.min(devicePixelRatio || 1, MOST_PIXEL_RATIO);
    const pixels = [Math.round(width * ratio), Math.max(Math.round(height * ratio), 1)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
      [canvas.width, canvas.height] = pixels;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
}

/** The piece at a point: {track, piece, inColumn}; of several within a pixel the longest. Null where there is none. */
function timelinePieceAt(timeline, { x, y }) {
  const { view, layout } = timeline;
  const found = x < view.left ? null : layout.laneAt(y + view.top);
  if (!found) return null;
  const time = timeline.timeAt(x);
  if (!found.lane) return timelineValueAt(found.track, time);
  const { lane } = found;
  const aPixelNs = timeline.timeAt(x + 1) - time;
  const covers = lane.at(time);
  const length = (index) => lane.end[index] - lane.start[index];
  if (covers >= 0 && length(covers) >= aPixelNs) return { track: lane.track, piece: lane.piece(covers), inColumn: 1 };
  const from = lane.firstAfter(time - aPixelNs);
  const to = placeAfter(lane.start, time + aPixelNs);
  let longest = from;
  for (let index = from; index < to; index++) if (length(index) > length(longest)) longest = index;
  return from < to ? { track: lane.track, piece: lane.piece(longest), inColumn: to - from } : null;
}

function timelineValueAt(track, time) {
  const piece = placeAfter(track.start, time) - 1;
  return piece < 0 || Number.isNaN(track.values[piece]) ? null : { track, piece, inColumn: 1 };
}
