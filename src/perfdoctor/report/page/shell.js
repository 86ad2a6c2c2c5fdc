// Pages, copying, and links from a finding to its moment on the timeline.

function startShell() {}
