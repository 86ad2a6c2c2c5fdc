// Which colour does a piece have? Those of the style sheet, read again when it changes between light and dark.

const KIND_COLOURS = {
  step: "--tl-step", idle: "--grey", kernels: "--compute", collectives: "--exposed-communication", copies: "--exposed-copy", ranges: "--tl-ranges",
  ops: "--tl-ops", functions: "--tl-functions", calls: "--tl-calls", os_calls: "--tl-os-calls", counter: "--tl-counter",
};
/** Different names differ in lightness; the hue is that of the kind. */
const SHADES = [-0.16, -0.08, 0, 0.1, 0.2];
const USUAL_SHADE = 2;
/** Shares of the background mixed in: behind a density, and for what a search does not match. */
const PALE_MIX = 0.58;
const DIM_MIX = 0.78;
/** Four fills a colour: full, behind a density, and both dimmed. */
const FILLS_A_COLOUR = 4;
const PALE = 1;
const DIM = 2;

function mixedColour(one, other, part) {
  return one.map((value, channel) => Math.round(value + (other[channel] - value) * part));
}

function relativeLuminance(colour) {
  const [red, green, blue] = colour.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever is easier to read on a colour (WCAG 2 contrast: never under 4.5). */
function readableOn(colour) {
  const light = relativeLuminance(colour) + 0.05;
  return 1.05 / light > light / 0.05 ? "#ffffff" : "#000000";
}

function cssColour([red, green, blue], alpha = 1) {
  return `rgb(${red} ${green} ${blue} / ${alpha})`;
}

/** As four bytes of image memory on little-endian machines, as all that run browsers are. */
function pixelColour([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** The fills of all pieces as numbers: `fills[number]` is its pixel, `inks[number]` the text colour on it. */
class TimelineColours {
  constructor(data, root) {
    this.data = data;
    this.root = root;
    this.shadeOf = Uint8Array.from(data.names, shadeOfName);
    this.read();
  }

  /** Colours as the style sheet has them now. */
  read() {
    this.fills = [];
    this.inks = [];
    this.bases = {};
    this.card = this.#variable("--card");
    for (const name of ["ink", "soft", "line", "link"]) this[name] = cssColour(this.#variable(`--${name}`));
    this.paper = cssColour(this.card);
    this.markFill = cssColour(this.#variable("--link"), 0.13);
    this.paperPixel = pixelColour(this.card);
    this.linePixel = pixelColour(this.#variable("--line"));
    this.inkPixel = pixelColour(this.#variable("--ink"));
    for (const kind of new Set(this.data.tracks.map((track) => track.kind))) this.#addShades(kind);
    this.causes = new Map();
  }

  /** Number of a piece's fill; PALE and DIM may be added. */
  of(track, piece) {
    const name = track.name[piece];
    return track.kind === "idle" ? this.ofCause(name) : this.bases[track.kind] + this.shadeOf[name] * FILLS_A_COLOUR;
  }

  /** The fill of a track's density, which is the same for all names. */
  ofTrack(track) {
    return this.bases[track.kind] + USUAL_SHADE * FILLS_A_COLOUR;
  }

  /** The fill of an idle cause, by its index in the names: as in the step's bar. */
  ofCause(name) {
    if (!this.causes.has(name)) this.causes.set(name, this.#add(this.#partColour(this.data.names[name])));
    return this.causes.get(name);
  }

  #addShades(kind) {
    const colour = this.#variable(KIND_COLOURS[kind] || "--grey");
    this.bases[kind] = this.fills.length;
    for (const shade of SHADES) this.#add(mixedColour(colour, shade < 0 ? [0, 0, 0] : [255, 255, 255], Math.abs(shade)));
  }

  #add(colour) {
    const number = this.fills.length;
    const pale = mixedColour(colour, this.card, PALE_MIX);
    const dim = mixedColour(colour, this.card, DIM_MIX);
    for (const fill of [colour, pale, dim, mixedColour(pale, this.card, PALE_MIX)]) {
      this.fills.push(pixelColour(fill));
      this.inks.push(readableOn(fill));
    }
    return number;
  }

  #variable(name) {
    return this.#probe((element) => element.style.setProperty("background-color", `var(${name})`));
  }

  #partColour(cause) {
    if (!/^[a-z_]+$/.test(cause)) return this.#variable("--grey");
    const colour = this.#probe((element) => element.classList.add(`p-${cause}`));
    return colour || this.#variable("--grey");
  }

  /** The background that the style sheet gives an element, as [red, green, blue]; null if none. */
  #probe(dress) {
    const element = document.createElement("span");
    element.hidden = true;
    dress(element);
    this.root.append(element);
    const numbers = getComputedStyle(element).backgroundColor.match(/[\d.]+/g).map(Number);
    element.remove();
    return numbers[3] === 0 ? null : numbers.slice(0, 3);
  }
}

/** A name's shade, the same in every report. */
function shadeOfName(name) {
  let hash = 0;
  for (let place = 0; place < name.length; place++) hash = (hash * 31 + name.charCodeAt(place)) | 0;
  return Math.abs(hash) % SHADES.length;
}
