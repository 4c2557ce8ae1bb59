// Reads server-sent events from pieces of text that are cut anywhere. Lines end with \n or \r\n, as our server sends them.

/**
 * @typedef {object} ServerEvent
 * @property {string} id "": as before
 * @property {string} event
 * @property {string} data
 */

export class EventReader {
  #rest = "";
  #id = "";
  #event = "";
  /** @type {string[]} */
  #data = [];

  /**
   * The events that are complete with this piece. An event whose end has not come is not returned, so the id of the last
   * returned one always says what has been seen.
   * @param {string} piece
   * @returns {ServerEvent[]}
   */
  push(piece) {
    /** @type {ServerEvent[]} */
    const found = [];
    this.#rest += piece;
    let begin = 0;
    for (let end = this.#rest.indexOf("\n"); end >= 0; end = this.#rest.indexOf("\n", begin)) {
      const line = this.#rest.slice(begin, this.#rest[end - 1] === "\r" && end > begin ? end - 1 : end);
      begin = end + 1;
      if (line) this.#take(line);
      else this.#finish(found);
    }
    this.#rest = this.#rest.slice(begin);
    return found;
  }

  /** @param {string} line */
  #take(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id") this.#id = value;
  }

  /** @param {ServerEvent[]} found */
  #finish(found) {
    if (this.#data.length) found.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
    this.#id = "";
    this.#event = "";
    this.#data = [];
  }
}
