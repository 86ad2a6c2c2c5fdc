// What do mouse, fingers and keys do on the timeline?

const ZOOM_STEP = 1.5;
const PAN_PART = 0.2;
/** A pointer that moved less than this has clicked. */
const CLICK_PX = 4;
const WHEEL_ZOOM_A_PX = 0.0022;
/** Pixels of a wheel's unit: pixel, line, page. */
const WHEEL_UNITS_PX = [1, 16, 400];

/** Wheel, drag, pinch and keys on the picture and its axis, acting on `timeline`. */
class TimelineInput {
  constructor(timeline) {
    this.timeline = timeline;
    this.pointers = new Map();
    for (const canvas of [timeline.stage.canvas, timeline.stage.axisCanvas]) this.#listen(canvas);
    timeline.stage.canvas.addEventListener("keydown", (event) => this.#onKey(event));
    timeline.stage.canvas.addEventListener("dblclick", () => this.timeline.zoomToSelected());
    timeline.stage.canvas.addEventListener("pointerleave", () => this.timeline.hover(null));
  }

  #listen(canvas) {
    canvas.addEventListener("wheel", (event) => this.#onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#onDown(event));
    canvas.addEventListener("pointermove", (event) => this.#onMove(event));
    canvas.addEventListener("pointerup", (event) => this.#onUp(event, true));
    canvas.addEventListener("pointercancel", (event) => this.#onUp(event, false));
  }

  /** With Ctrl it zooms, with Shift or sideways it moves; otherwise it scrolls the tracks, and then the page. */
  #onWheel(event) {
    const { timeline } = this;
    const unit = WHEEL_UNITS_PX[event.deltaMode];
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) timeline.zoom(Math.exp(-event.deltaY * unit * WHEEL_ZOOM_A_PX), timeline.timeAt(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(sideways * unit);
    else return;
    event.preventDefault();
  }

  #onDown(event) {
    if (event.button !== 0) return;
    const { timeline } = this;
    event.target.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    const selects = event.shiftKey || event.target === timeline.stage.axisCanvas;
    this.drag = { x: event.offsetX, y: event.offsetY, atX: event.offsetX, selects, moved: false, top: timeline.stage.scroller.scrollTop };
    this.pinch = this.pointers.size === 2 ? this.#spread() : null;
  }

  #onMove(event) {
    const { timeline } = this;
    if (!this.pointers.has(event.pointerId)) {
      if (event.target === timeline.stage.canvas) timeline.hover({ x: event.offsetX, y: event.offsetY });
      return;
    }
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (this.pinch) this.#onPinch();
    else this.#onDrag(event);
  }

  #onDrag(event) {
    const { drag, timeline } = this;
    drag.moved ||= Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) >= CLICK_PX;
    if (!drag.moved) return;
    timeline.hover(null);
    if (drag.selects) timeline.selectSpan(timeline.timeAt(drag.x), timeline.timeAt(event.offsetX));
    else {
      timeline.pan(drag.atX - event.offsetX);
      if (event.pointerType === "mouse") timeline.stage.scroller.scrollTop = drag.top + drag.y - event.offsetY;
    }
    drag.atX = event.offsetX;
  }

  #onPinch() {
    const { timeline } = this;
    const now = this.#spread();
    timeline.pan(this.pinch.middle - now.middle);
    timeline.zoom(now.width / this.pinch.width, timeline.timeAt(now.middle));
    this.pinch = now;
    this.drag.moved = true;
  }

  #spread() {
    const [one, other] = [...this.pointers.values()];
    return { middle: (one.x + other.x) / 2, width: Math.max(Math.hypot(one.x - other.x, one.y - other.y), 10) };
  }

  #onUp(event, isClick) {
    const { drag, timeline } = this;
    this.pointers.delete(event.pointerId);
    if (this.pointers.size) {
      this.pinch = null;
      const [left] = this.pointers.values();
      this.drag = { ...drag, atX: left.x };
      return;
    }
    if (!drag) return;
    if (drag.selects && drag.moved) timeline.zoomToSpan();
    else if (isClick && !drag.moved && event.target === timeline.stage.canvas) timeline.clickAt({ x: event.offsetX, y: event.offsetY });
    this.drag = null;
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.#actOf(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  #actOf(event) {
    const { timeline } = this;
    const side = (timeline.view.width - timeline.view.left) * PAN_PART;
    const acts = {
      w: () => timeline.zoom(ZOOM_STEP), "+": () => timeline.zoom(ZOOM_STEP), "=": () => timeline.zoom(ZOOM_STEP),
      s: () => timeline.zoom(1 / ZOOM_STEP), "-": () => timeline.zoom(1 / ZOOM_STEP), _: () => timeline.zoom(1 / ZOOM_STEP),
      a: () => timeline.pan(-side), d: () => timeline.pan(side),
      arrowleft: () => (event.shiftKey ? timeline.step(-1) : timeline.pan(-side)),
      arrowright: () => (event.shiftKey ? timeline.step(1) : timeline.pan(side)),
      "[": () => timeline.step(-1), "]": () => timeline.step(1),
      arrowup: () => timeline.stepTrack(-1), arrowdown: () => timeline.stepTrack(1),
      enter: () => timeline.enter(), " ": () => timeline.enter(), l: () => timeline.follow(),
      n: () => timeline.nextMatch(event.shiftKey ? -1 : 1), "/": () => timeline.toolbar.search.focus(),
      0: () => timeline.showAll(), t: () => timeline.showTypical(),
      home: () => timeline.pan(-Infinity), end: () => timeline.pan(Infinity), escape: () => timeline.clear(),
    };
    return acts[event.key.toLowerCase()];
  }
}
