"use strict";

// Hands a trace to Perfetto in another tab, as https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
// describes: messages to a window are not kept, so it is asked until it answers.

const PERFETTO = "https://ui.perfetto.dev";
const ASK_EVERY_MS = 50;
const GIVE_UP_MS = 60000;

const say = (text) => {
  document.getElementById("said").textContent = text;
};

/** Asks until the page is there, then posts. Only what comes from that window counts. */
const post = (target, message) => {
  const asking = setInterval(() => target.postMessage("PING", PERFETTO), ASK_EVERY_MS);
  const given_up = setTimeout(() => {
    clearInterval(asking);
    say("ui.perfetto.dev did not answer: is it reachable from this browser?");
  }, GIVE_UP_MS);
  const answered = (event) => {
    if (event.source !== target || event.origin !== PERFETTO || event.data !== "PONG") return;
    clearInterval(asking);
    clearTimeout(given_up);
    removeEventListener("message", answered);
    target.postMessage(message, PERFETTO);
    say("Perfetto has it.");
  };
  addEventListener("message", answered);
};

const open_trace = async (button) => {
  // In the click itself: later a browser takes it for an unwanted window.
  const target = open(`${PERFETTO}/#!/${button.dataset.moment ? `?${button.dataset.moment}` : ""}`);
  if (!target) {
    say("The browser did not open another tab: allow it for this address, and try again.");
    return;
  }
  say("Loading the trace …");
  try {
    const answer = await fetch(button.dataset.trace);
    if (!answer.ok) throw new Error(`the trace is not there any more (${answer.status})`);
    const buffer = await answer.arrayBuffer();
    const title = button.dataset.title;
    post(target, { perfetto: { buffer, title, fileName: title.split("/").pop() } });
  } catch (error) {
    say(`The trace could not be loaded: ${error.message}.`);
  }
};

for (const button of document.querySelectorAll("button.in-perfetto")) {
  button.addEventListener("click", () => open_trace(button));
}
