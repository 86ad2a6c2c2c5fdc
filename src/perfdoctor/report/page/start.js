// What runs when the page is loaded: everything else in this script is definitions.

/** The contents of a script element: base64 of raw-deflated JSON. */
async function unpacked(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}

startShell();
unpacked("views").then((views) => {
  if (!views) return;
  startTables(views.tables);
  if (!views.timeline) return;
  startTimeline(views.timeline);
  timelineIsThere(showOnTimeline);
});
