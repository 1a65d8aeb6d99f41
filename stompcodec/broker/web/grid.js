"use strict";

/* A table of any length: only the rows in sight are in the document, and only cells that changed are written. */

const BEYOND = 6; // rows above and below those in sight

class Grid {
  /* columns: key, title, text(row), and if wanted num, rank (2: not on phones, 3: wide windows only), width, sort, tone(row). */
  constructor({ label, columns, key, open, onSort, empty }) {
    Object.assign(this, { columns, key, open, onSort, empty: empty || "Nothing here.", rows: [], pool: [], first: 0, chosen: null, offset: 0, sort: null });
    this.id = "g" + (Grid.count = (Grid.count || 0) + 1);
    this.head = el("tr", { role: "row" }, columns.map((column) => this.title(column)));
    this.above = el("tr", { class: "pad", "aria-hidden": true }, el("td", { role: "presentation" }));
    this.below = el("tr", { class: "pad", "aria-hidden": true }, el("td", { role: "presentation" }));
    this.body = el("tbody", { role: "rowgroup" }, this.above, this.below);
    this.nothing = el("p", { class: "none" });
    this.node = el("div", { class: "scroller", role: "grid", tabindex: 0, "aria-label": label },
      el("table", { class: "grid", role: "presentation" }, el("thead", { role: "rowgroup" }, this.head), this.body), this.nothing);
    this.node.addEventListener("scroll", () => this.soon());
    this.node.addEventListener("keydown", (event) => this.pressed(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr.row");
      if (row) { this.choose(Number(row.dataset.at)); this.enter(); }
    });
    this.watch = new ResizeObserver(() => this.soon());
    this.watch.observe(this.node);
  }

  title(column) {
    const settings = { role: "columnheader", scope: "col", class: this.classOf(column) };
    if (!column.sort) return this.sized(el("th", { ...settings, text: column.title, title: column.hint }), column);
    const button = el("button", { type: "button", text: column.title, title: column.hint, onclick: () => this.onSort(column.key) });
    return this.sized(el("th", { ...settings, "aria-sort": "none" }, button), column);
  }

  sized(cell, column) {
    if (column.width) cell.style.width = column.width + "px";
    return cell;
  }

  classOf(column) {
    return [column.num && "num", column.rank && "r" + column.rank, column.name && "name"].filter(Boolean).join(" ");
  }

  /* Show by which column the rows are sorted: {key, up}, or null. */
  sorted(sort) {
    this.columns.forEach((column, at) => {
      const own = sort && sort.key === column.key;
      if (column.sort) this.head.children[at].setAttribute("aria-sort", own ? (sort.up ? "ascending" : "descending") : "none");
    });
  }

  show(rows, offset = 0) {
    const place = this.chosen === null ? -1 : rows.findIndex((row) => this.key(row) === this.chosen);
    if (place < 0) this.chosen = null;
    this.rows = rows;
    this.offset = offset;
    this.node.setAttribute("aria-rowcount", rows.length + 1);
    this.nothing.hidden = rows.length > 0;
    setText(this.nothing, this.empty);
    this.render();
  }

  top() { this.node.scrollTop = 0; }

  soon() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.render(); });
  }

  get height() { return matchMedia("(max-width: 760px)").matches ? 44 : 34; }

  render() {
    const height = this.height, rows = this.rows;
    const most = Math.ceil((this.node.clientHeight || 600) / height) + 2 * BEYOND;
    this.first = Math.max(0, Math.min(Math.floor(this.node.scrollTop / height) - BEYOND, rows.length - most));
    const shown = Math.min(most, rows.length - this.first);
    while (this.pool.length < shown) this.pool.push(this.line());
    this.pool.forEach((line, at) => this.fill(line, at < shown ? this.first + at : -1));
    this.above.firstChild.style.height = this.first * height + "px";
    this.below.firstChild.style.height = (rows.length - this.first - shown) * height + "px";
    const chosen = this.pool.find((line) => line.node.getAttribute("aria-selected") === "true");
    if (chosen) this.node.setAttribute("aria-activedescendant", chosen.node.id);
    else this.node.removeAttribute("aria-activedescendant");
  }

  line() {
    const cells = this.columns.map((column) => el("td", { role: "gridcell", class: this.classOf(column) }));
    const node = el("tr", { class: "row", role: "row", id: this.id + "-" + this.pool.length }, cells);
    this.body.insertBefore(node, this.below);
    return { node, cells, texts: cells.map(() => ""), tones: cells.map(() => "") };
  }

  fill(line, at) {
    line.node.hidden = at < 0;
    if (at < 0) { line.node.removeAttribute("aria-selected"); return; }
    const row = this.rows[at];
    line.node.dataset.at = at;
    line.node.setAttribute("aria-rowindex", this.offset + at + 2);
    line.node.setAttribute("aria-selected", String(this.key(row) === this.chosen));
    this.columns.forEach((column, place) => {
      const text = column.text(row), cell = line.cells[place];
      const tone = column.tone ? column.tone(row) : column.num && (text === "0" || text === "–") ? "zero" : "";
      if (text !== line.texts[place]) {
        cell.textContent = line.texts[place] = text;
        if (column.name) cell.title = text;
      }
      if (tone !== line.tones[place]) {
        cell.className = (this.classOf(column) + " " + tone).trim();
        line.tones[place] = tone;
      }
    });
  }

  get at() { return this.rows.findIndex((row) => this.key(row) === this.chosen); }

  choose(at) {
    if (!this.rows.length) return;
    at = Math.max(0, Math.min(at, this.rows.length - 1));
    this.chosen = this.key(this.rows[at]);
    const height = this.height, top = at * height, room = this.node.clientHeight - 36 - height;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top > this.node.scrollTop + room) this.node.scrollTop = top - room;
    this.render();
  }

  enter() {
    const row = this.rows[this.at];
    if (row && this.open) this.open(row);
  }

  move(step) { this.choose(this.at < 0 ? (step > 0 ? 0 : this.rows.length - 1) : this.at + step); }

  pressed(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.rows.length - 1);
    else if (event.key === "Enter") this.enter();
    else return;
    event.preventDefault();
  }
}
