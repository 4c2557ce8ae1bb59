// The heights of many rows: where a row is, and which row is at a place. Sums are kept for blocks of rows.

const BLOCK = 256;

export class Heights {
  /** @type {number[]} */
  #sizes = [];
  /** @type {number[]} */
  #sums = [];
  total = 0;

  get count() {
    return this.#sizes.length;
  }

  /** @param {number} index */
  get(index) {
    return this.#sizes[index] ?? 0;
  }

  /** @param {number} size */
  push(size) {
    const block = Math.floor(this.#sizes.length / BLOCK);
    this.#sizes.push(size);
    this.#sums[block] = (this.#sums[block] ?? 0) + size;
    this.total += size;
  }

  /**
   * @param {number} index
   * @param {number} size
   */
  set(index, size) {
    const change = size - this.get(index);
    const block = Math.floor(index / BLOCK);
    this.#sizes[index] = size;
    this.#sums[block] = (this.#sums[block] ?? 0) + change;
    this.total += change;
  }

  /** @param {number} index @returns {number} the top of the row */
  findTop(index) {
    const block = Math.floor(index / BLOCK);
    let top = 0;
    for (let at = 0; at < block; at += 1) top += this.#sums[at] ?? 0;
    for (let at = block * BLOCK; at < index; at += 1) top += this.#sizes[at] ?? 0;
    return top;
  }

  /** @param {number} top @returns {number} the row that is there */
  findIndex(top) {
    let rest = top;
    let block = 0;
    while (block < this.#sums.length && rest >= (this.#sums[block] ?? 0)) {
      rest -= this.#sums[block] ?? 0;
      block += 1;
    }
    let index = block * BLOCK;
    while (index < this.count && rest >= this.get(index)) {
      rest -= this.get(index);
      index += 1;
    }
    return Math.max(0, Math.min(index, this.count - 1));
  }

  /** @param {number} count @returns {number} the height of the rows that are gone */
  dropFirst(count) {
    const height = this.findTop(count);
    const kept = this.#sizes.slice(count);
    this.clear();
    for (const size of kept) this.push(size);
    return height;
  }

  /** @param {number} count so many rows stay */
  dropLast(count) {
    const kept = this.#sizes.slice(0, count);
    this.clear();
    for (const size of kept) this.push(size);
  }

  clear() {
    this.#sizes = [];
    this.#sums = [];
    this.total = 0;
  }
}
