// What runs when the page is loaded: everything else in this script is definitions.

startShell();
unpacked("views").then((views) => {
  if (!views) return;
  startTables(views.tables);
  startIcicles(views.icicles);
});
unpacked("drawn-timeline").then((timeline) => {
  if (!timeline) return;
  startTimeline(timeline);
  timelineIsThere(showOnTimeline);
});
