// Icicles: nested parts of a whole, each as wide as its share, the parts inside it below it. A click zooms.
// All text from a recording is set as textContent.

/** Narrower parts, in pixels, are left out: nobody could click on them. */
const ICICLE_LEAST_PX = 2;
const ICICLE_ROW_PX = 22;
const ICICLE_MOST_ROWS = 24;
/** Parts of one name have one lightness, among this many. */
const ICICLE_SHADES = 5;

/** Fills each element with data-icicle="<id>"; `root` is {name, value, children}, the values with those inside. */
function startIcicles(icicles) {
  for (const icicle of icicles) {
    const element = document.querySelector(`[data-icicle="${CSS.escape(icicle.id)}"]`);
    if (element) new IcicleView(element, icicle);
  }
}

class IcicleView {
  constructor(element, icicle) {
    this.icicle = icicle;
    this.parents = new Map();
    linkIcicle(icicle.root, this.parents);
    this.box = tableElement("div", { className: "icicle-box" });
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", `${icicle.title}: arrow keys go to the parts, Enter zooms in, Escape zooms out`);
    this.said = tableElement("p", { className: "icicle-said" });
    this.said.setAttribute("role", "status");
    this.whole = tableButton("Show all", () => this.zoom(icicle.root));
    element.classList.add("icicle");
    const title = tableElement("h2", { id: `icicle-${icicle.id}`, textContent: icicle.title });
    const explained = tableElement("p", { className: "table-explained", textContent: icicle.explained });
    element.replaceChildren(title, explained, tableElement("div", { className: "table-tools" }, this.whole, this.said), this.box);
    this.box.addEventListener("click", (event) => this.#onClick(event));
    this.box.addEventListener("keydown", (event) => this.#onKey(event));
    this.box.addEventListener("focusin", (event) => this.#say(this.nodes.get(event.target)));
    this.box.addEventListener("pointerover", (event) => this.#say(this.nodes.get(event.target)));
    this.shown = icicle.root;
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.draw();
  }

  /** The shown part and all inside it as wide as the box; those around it as whole rows above. */
  draw() {
    const width = this.box.clientWidth;
    if (!width) return; // its page is hidden
    const around = icicleAround(this.shown, this.parents);
    this.nodes = new Map();
    this.elements = new Map();
    const parts = around.map((node, row) => this.#part(node, row, 0, 1));
    this.#below(this.shown, around.length, 0, 1, width, parts);
    const rows = Math.max(...parts.map((part) => Number(part.dataset.row))) + 1;
    this.box.style.height = `${rows * ICICLE_ROW_PX}px`;
    this.box.replaceChildren(...parts);
    this.whole.disabled = this.shown === this.icicle.root;
    this.elements.get(this.shown).tabIndex = 0;
    this.#say(this.shown);
  }

  zoom(node) {
    this.shown = node;
    this.draw();
    this.elements.get(node).focus({ preventScroll: true });
  }

  #below(node, row, left, size, width, parts) {
    if (row >= ICICLE_MOST_ROWS) return;
    const sum = (node.children ?? []).reduce((all, child) => all + child.value, 0);
    const whole = Math.max(node.value, sum);
    let at = left;
    for (const child of node.children ?? []) {
      const share = whole > 0 ? (size * child.value) / whole : 0;
      if (share * width >= ICICLE_LEAST_PX) {
        parts.push(this.#part(child, row, at, share));
        this.#below(child, row + 1, at, share, width, parts);
      }
      at += share;
    }
  }

  #part(node, row, left, size) {
    const part = tableElement("button", { type: "button", tabIndex: -1, textContent: node.name, className: `icicle-${node.muted ? "muted" : icicleShade(node.name)}` });
    part.dataset.row = String(row);
    part.style.left = `${left * 100}%`;
    part.style.width = `${size * 100}%`;
    part.style.top = `${row * ICICLE_ROW_PX}px`;
    part.title = this.#words(node);
    this.nodes.set(part, node);
    this.elements.set(node, part);
    return part;
  }

  #words(node) {
    const { root, unit } = this.icicle;
    return `${node.name}: ${inWords(node.value, unit)}, ${fineShare(root.value ? node.value / root.value : 0)}`;
  }

  #say(node) {
    if (node) this.said.textContent = this.#words(node);
  }

  #onClick(event) {
    const node = this.nodes.get(event.target);
    if (node) this.zoom(node);
  }

  #onKey(event) {
    const node = this.nodes.get(event.target);
    if (!node || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") this.zoom(this.parents.get(this.shown) ?? this.icicle.root);
    else if (!this.#go(node, event.key)) return;
    event.preventDefault();
  }

  /** To the part inside, around or beside; false for any other key. */
  #go(node, key) {
    const parent = this.parents.get(node);
    const beside = (parent?.children ?? []).filter((each) => this.elements.has(each));
    const at = beside.indexOf(node);
    const goals = {
      ArrowUp: () => parent,
      ArrowDown: () => (node.children ?? []).find((each) => this.elements.has(each)),
      ArrowLeft: () => beside[at - 1],
      ArrowRight: () => beside[at + 1],
      Home: () => this.icicle.root,
    };
    if (!Object.hasOwn(goals, key)) return false;
    this.#focus(goals[key]());
    return true;
  }

  #focus(node) {
    const element = this.elements.get(node);
    if (!element) return;
    for (const each of this.elements.values()) each.tabIndex = -1;
    element.tabIndex = 0;
    element.focus({ preventScroll: true });
  }
}

function linkIcicle(root, parents) {
  const left = [root];
  while (left.length) {
    const node = left.pop();
    for (const child of node.children ?? []) {
      parents.set(child, node);
      left.push(child);
    }
  }
}

/** From the root to this part. */
function icicleAround(node, parents) {
  const around = [];
  for (let each = node; each; each = parents.get(each)) around.unshift(each);
  return around;
}

function icicleShade(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 65_521;
  return sum % ICICLE_SHADES;
}
