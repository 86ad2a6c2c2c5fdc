// What runs when the page is loaded: everything else in this script is definitions.

startShell();
unpacked("views").then((views) => {
  if (!views) return;
  startTables(views.tables);
  startIcicles(views.icicles);
  if (!views.timeline) return;
  startTimeline(views.timeline);
  timelineIsThere(showOnTimeline);
});
