// How are ten thousand rectangles drawn in a millisecond? As pixels in image memory, line by line.

const STRIPE_PX = 6;

/**
 * Rectangles written directly into image memory: calls of a canvas would take many times as long.
 * Coordinates are pixels of the page; edges are rounded to pixels of the screen, and nothing is thinner than one.
 */
class TimelineRaster {
  /** Starts an image of one colour; nothing is drawn left of `left`. */
  begin(context, left, pixel) {
    const { width, height } = context.canvas;
    this.ratio = context.getTransform().a;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.left = Math.round(left * this.ratio);
    this.pixels.fill(pixel);
    if (this.levels?.length !== width) {
      this.levels = new Uint16Array(width);
      this.above = new Uint32Array(width);
      this.below = new Uint32Array(width);
    }
    this.runFrom = this.runTo = 0;
  }

  /** One pixel column, filled from the bottom; columns are collected until `endColumns`, and drawn line by line. */
  column(x, level, below, above, y, height) {
    const from = Math.round(x * this.ratio);
    const to = Math.min(Math.round((x + 1) * this.ratio), this.levels.length);
    if (from !== this.runTo) this.endColumns(y, height);
    if (this.runFrom === this.runTo) this.runFrom = from;
    for (let each = from; each < to; each++) {
      this.levels[each] = Math.max(Math.round(level * this.ratio), 1);
      this.below[each] = below;
      this.above[each] = above;
    }
    this.runTo = to;
  }

  endColumns(y, height) {
    const { pixels, image, levels, above, below, ratio } = this;
    const from = Math.max(this.runFrom, this.left);
    const bottom = Math.round((y + height) * ratio);
    const last = Math.min(bottom, image.height);
    for (let line = Math.max(Math.round(y * ratio), 0); line < last; line++) {
      const at = line * image.width;
      for (let each = from; each < this.runTo; each++) pixels[at + each] = bottom - line > levels[each] ? above[each] : below[each];
    }
    this.runFrom = this.runTo = 0;
  }

  /** `striped`: only every other diagonal stripe. */
  rect(pixel, x, y, width, height, striped = false) {
    const { ratio, pixels, image } = this;
    const from = Math.max(Math.round(x * ratio), this.left);
    const to = Math.min(Math.max(Math.round((x + width) * ratio), from + 1), image.width);
    const top = Math.max(Math.round(y * ratio), 0);
    const bottom = Math.min(Math.round((y + height) * ratio), image.height);
    for (let line = top; line < bottom; line++) {
      const at = line * image.width;
      if (striped) for (let each = from; each < to; each++) if ((each + line) % STRIPE_PX < STRIPE_PX / 2) pixels[at + each] = pixel;
      if (striped) continue;
      if (to - from > 12) pixels.fill(pixel, at + from, at + to);
      else for (let each = from; each < to; each++) pixels[at + each] = pixel;
    }
  }

  end(context) {
    context.putImageData(this.image, 0, 0);
  }
}
