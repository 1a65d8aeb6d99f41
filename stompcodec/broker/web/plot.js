"use strict";

/* Plots drawn by hand: the last minutes of some numbers, which move to the left. */

const SECONDS = 600;
const TONES = ["--one", "--two", "--three", "--four", "--five", "--six"];

/* The numbers of one line, with their times. Samples that are older than the plots are forgotten. */
class Series {
  constructor() { this.points = []; }

  add(time, value) {
    this.points.push([time, value]);
    while (this.points.length && this.points[0][0] < time - SECONDS * 1.2) this.points.shift();
  }

  get last() { return this.points.length ? this.points.at(-1)[1] : null; }
}

const inks = new Map();
function ink(name) {
  if (!inks.has(name)) {
    const probe = el("span");
    probe.style.color = "var(" + name + ")";
    document.body.append(probe);
    inks.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return inks.get(name);
}

function ceiling(value, base) {
  if (!(value > 0)) return 1;
  if (base === 2) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((top) => top >= value * 0.999);
}

class Plot {
  constructor(title, unit, format, smallest = 0, base = 10) {
    Object.assign(this, { title, unit, format, smallest, base, lines: [], pointer: null });
    this.now = el("span");
    this.canvas = el("canvas", { role: "img", "aria-label": title });
    this.legend = el("div", { class: "keys" });
    this.node = el("section", { class: "card plot" },
      el("h3", { text: title }), el("p", { class: "now" }, this.now, el("span", { class: "unit", text: unit ? " " + unit : "" })),
      this.canvas, this.legend);
    this.canvas.addEventListener("pointermove", (event) => { this.pointer = event.offsetX; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  /* Show lines: each has a name and a series. The first is what the large number tells. */
  show(lines, time, text) {
    this.lines = lines;
    this.time = time;
    setText(this.now, text ?? this.format(lines.length ? lines[0].series.last : null));
    this.canvas.setAttribute("aria-label", this.title + ": " + this.now.textContent + " " + this.unit + " now, at most " +
      this.format(this.peak()) + " in the last " + SECONDS / 60 + " minutes");
    this.draw();
  }

  values() {
    return this.lines.flatMap((line) => line.series.points.filter((point) => point[0] > this.time - SECONDS && point[1] !== null).map((point) => point[1]));
  }

  peak() { return this.values().reduce((most, value) => Math.max(most, value), 0); }

  draw() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width || this.time === undefined) return;
    if (this.canvas.width !== Math.round(width * scale)) this.canvas.width = Math.round(width * scale);
    if (this.canvas.height !== Math.round(height * scale)) this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const top = ceiling(Math.max(this.peak(), this.smallest), this.base), low = height - 15, high = 12;
    const x = (time) => width - ((this.time - time) / SECONDS) * width;
    const y = (value) => low - (value / top) * (low - high);
    this.scale(pen, width, low, high, top);
    this.lines.forEach((line, at) => this.line(pen, line, ink(TONES[at % TONES.length]), x, y, low, this.lines.length === 1));
    this.labels((at) => this.lines[at].series.last);
    if (this.pointer !== null) this.point(pen, x, y, width, low, high);
  }

  scale(pen, width, low, high, top) {
    pen.strokeStyle = ink("--grid");
    pen.fillStyle = ink("--soft");
    pen.lineWidth = 1;
    pen.font = "10.5px system-ui, sans-serif";
    for (const part of [0, 0.5, 1]) {
      const at = Math.round(low - part * (low - high)) + 0.5;
      pen.beginPath();
      pen.moveTo(0, at);
      pen.lineTo(width, at);
      pen.stroke();
    }
    pen.textAlign = "left";
    pen.fillText(this.format(top), 0, high - 3);
    for (let minute = 2; minute * 60 < SECONDS; minute += 2) {
      pen.textAlign = "center";
      pen.fillText("−" + minute + " min", width - (minute * 60 / SECONDS) * width, low + 13);
    }
    pen.textAlign = "right";
    pen.fillText("now", width, low + 13);
  }

  /* A gap of more than 10 s, or a number that is unknown, breaks the line. */
  line(pen, { series }, tone, x, y, low, filled) {
    let run = [];
    const flush = () => {
      if (run.length) {
        pen.beginPath();
        run.forEach(([time, value], at) => (at ? pen.lineTo(x(time), y(value)) : pen.moveTo(x(time), y(value))));
        if (run.length === 1) pen.lineTo(x(run[0][0]) + 1.5, y(run[0][1]));
        pen.strokeStyle = tone;
        pen.lineWidth = 1.75;
        pen.lineJoin = "round";
        pen.stroke();
        if (filled) {
          pen.lineTo(x(run.at(-1)[0]), low);
          pen.lineTo(x(run[0][0]), low);
          pen.globalAlpha = 0.13;
          pen.fillStyle = tone;
          pen.fill();
          pen.globalAlpha = 1;
        }
      }
      run = [];
    };
    for (const point of series.points) {
      if (point[1] === null || (run.length && point[0] - run.at(-1)[0] > 10)) flush();
      if (point[1] !== null) run.push(point);
    }
    flush();
  }

  point(pen, x, y, width, low, high) {
    const time = this.time - ((width - this.pointer) / width) * SECONDS;
    const nearest = (series) => series.points.reduce((best, point) =>
      best === null || Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best, null);
    const found = this.lines.map((line) => nearest(line.series));
    if (!found[0]) return;
    pen.strokeStyle = ink("--soft");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(x(found[0][0])) + 0.5, high);
    pen.lineTo(Math.round(x(found[0][0])) + 0.5, low);
    pen.stroke();
    this.labels((at) => (found[at] ? found[at][1] : null));
  }

  labels(value) {
    const names = this.lines.map((line) => line.name);
    if (this.legend.children.length !== names.length) {
      this.legend.replaceChildren(...names.map((_, at) => el("span", {}, el("i", { class: "c" + (at % TONES.length + 1) }), el("b"))));
    }
    names.forEach((name, at) => {
      const plain = names.length === 1 && this.pointer === null; // the large number tells it
      const short = name.length > 14 ? "…" + name.slice(-13) : name; // names of queues differ at their ends
      const text = plain || value(at) === null ? short : (this.format(value(at)) + "  " + short).trim();
      setText(this.legend.children[at].lastChild, text);
      this.legend.children[at].hidden = !text;
    });
  }
}
