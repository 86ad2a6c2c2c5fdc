// Two timelines above each other, with one scale: what is shown of one is shown of the other. Runs when the page is loaded.

/** A timeline that takes another one along: the same length of time, from as long before or behind its typical step. */
class LinkedTimeline extends Timeline {
  see(start, end) {
    super.see(start, end);
    const { other } = this;
    if (!other || other.isFollowing) return;
    this.isFollowing = true;
    const later = other.data.typical[0] - this.data.typical[0];
    other.see(this.view.start + later, this.view.end + later);
    this.isFollowing = false;
  }
}

/** Both are seen at once in a usual window, with what stands around them. */
const HEIGHT_PART_OF_TWO = 0.28;

let timelinesShown = [];

/** Fills the elements of both sides; a side without a recording has none. */
function startTimelines(views) {
  const known = ["before", "after"].filter((side) => views[side]);
  if (known.length > 1) timelineHeightPart = HEIGHT_PART_OF_TWO;
  const length = Math.max(...known.map((side) => views[side].length));
  timelinesShown = known.map((side) => {
    const element = document.getElementById(`timeline-${side}`);
    timelineCauses = JSON.parse(element.dataset.causes || "{}");
    return new LinkedTimeline({ ...views[side], length }, element);
  });
  const [one, other] = timelinesShown;
  if (!other) return;
  one.other = other;
  other.other = one;
  const [long] = [one, other].sort((a, b) => typicalLength(b) - typicalLength(a));
  long.showTypical();
}

const typicalLength = (timeline) => timeline.data.typical[1] - timeline.data.typical[0];

startShell();
unpacked("views").then((views) => {
  if (views) startTimelines(views);
});
