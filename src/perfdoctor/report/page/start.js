// What runs when the page is loaded: everything else in this script is definitions.

startShell();
Promise.all([unpacked("views"), unpacked("drawn-timeline")]).then(([views, timeline]) => {
  if (!views) return;
  startTables(views.tables);
  startIcicles(views.icicles);
  if (!timeline) return;
  startTimeline(timeline);
  timelineIsThere(showOnTimeline);
});
