// The timeline on a canvas. startTimeline(view) fills #timeline-view; showOnTimeline(rank, start, end) goes to a moment.

function startTimeline(view) {
  void view;
}

function showOnTimeline(rank, start, end) {
  void [rank, start, end];
}
