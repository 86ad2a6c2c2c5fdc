// Which page is shown, and what do its buttons do? Without this script all pages are shown one below the other.

/** Resolves to the function that goes to a moment when the timeline is ready; never if there is none. */
let timelineIsThere;
const timelineThere = new Promise((settle) => { timelineIsThere = settle; });

function startShell() {
  document.documentElement.classList.add("js");
  for (const page of pages()) page.tabIndex = -1;
  addEventListener("hashchange", showAddress);
  document.addEventListener("click", onShellClick);
  addEventListener("beforeprint", () => openAll(document.getElementById("findings")));
  showAddress();
}

const pages = () => [...document.querySelectorAll("main > .page")];

/** `#kernels` is a page, `#finding-2` something on one, `#timeline:0,100,200` a moment: rank, start and end in ns. */
function showAddress() {
  const [id, moment] = decodeURIComponent(location.hash.slice(1)).split(":");
  const target = document.getElementById(id);
  const shown = target?.closest("main > .page") ?? pages()[0];
  for (const page of pages()) page.hidden = page !== shown;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown.id}`) showCurrent(link);
    else link.removeAttribute("aria-current");
  }
  if (!target) return;
  openAround(target);
  if (target !== shown) target.scrollIntoView();
  else scrollTo(0, 0);
  (target.matches("details") ? target.querySelector("summary") : target).focus({ preventScroll: true });
  if (moment) timelineThere.then((show) => show(...moment.split(",").map(Number)));
}

/** Marks the link of the current page, and scrolls it into view where not all links fit. */
function showCurrent(link) {
  link.setAttribute("aria-current", "page");
  const nav = link.closest("nav");
  nav.scrollLeft += link.getBoundingClientRect().left - nav.getBoundingClientRect().left - (nav.clientWidth - link.offsetWidth) / 2;
}

function openAround(element) {
  for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

function openAll(part) {
  for (const fold of part?.querySelectorAll("details.card") ?? []) fold.open = true;
}

function onShellClick(event) {
  const button = event.target.closest("button[data-copy]");
  if (button) copyText(button.parentElement.querySelector("code").textContent, button);
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) showAddress(); // the same address does not change the hash
}

/** Copies the text, and says so on the button for two seconds. */
async function copyText(text, button) {
  const done = (await toClipboard(text)) ? "Copied" : "Press Ctrl+C";
  button.dataset.label ??= button.textContent;
  button.textContent = done;
  clearTimeout(Number(button.dataset.timer));
  button.dataset.timer = String(setTimeout(() => { button.textContent = button.dataset.label; }, 2000));
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text); // pages from a file may have no access to the clipboard
  }
}

function copiedBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}
