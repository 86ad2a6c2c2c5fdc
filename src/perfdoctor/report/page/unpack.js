// How is data unpacked that the page holds?

/** The contents of a script element: base64 of raw-deflated JSON. */
async function unpacked(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}
