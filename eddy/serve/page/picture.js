/** The picture of a topology: layers from the sources down or to the right, and each recursion a room with its loop.
 *
 * dagre (MIT; its licence is beside it) finds the places; it is loaded with the first picture. A step without a name
 * that has one step before it and one after it can be folded: the step after it then tells how many are.
 */

import { make } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const FOLDED_FROM = 25; // steps; a smaller picture is shown whole at first
const HEIGHT = 38;
const ROOM = 20; // of the name of a room
const LONGEST = 26; // characters of a name
const ZOOM = 1.25;
const GRID_FROM = 6; // at least so many steps without edges are laid out in rows
const GAP = 18; // between them

const draw = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
};

const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** Place steps without edges in rows below a graph that is laid out. Returns the size of both. */
function inGrid(graph, alone, ratio) {
  const { width, height } = graph.nodes().length ? graph.graph() : { width: 0, height: 10 };
  if (!alone.length) return { width, height };
  const [wide, high] = [Math.max(...alone.map(([, { width }]) => width)) + GAP, HEIGHT + GAP];
  const columns = Math.max(1, Math.floor(width / wide), Math.round(Math.sqrt((alone.length * high * ratio) / wide)));
  alone.forEach(([id, size], index) => graph.setNode(id, { ...size, x: 10 + (index % columns + 0.5) * wide, y: height + (Math.floor(index / columns) + 0.5) * high }));
  return { width: Math.max(width, 20 + Math.min(columns, alone.length) * wide), height: height + Math.ceil(alone.length / columns) * high + 10 };
}

/** A picture in `element`. `choose(number)` is called for a chosen step, `tell(step)` returns its second line. */
export class Picture {
  constructor(steps, { choose, tell }) {
    Object.assign(this, { steps, choose, tell, nodes: new Map(), chosen: null });
    this.folds = steps.length >= FOLDED_FROM;
    this.svg = draw("svg", { role: "group", "aria-label": "Steps of the topology" });
    const button = (text, label, act) => {
      const made = make("button", { "aria-label": label, title: label }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.toggle = make("input", { type: "checkbox" });
    this.toggle.checked = this.folds;
    this.toggle.addEventListener("change", () => {
      this.folds = this.toggle.checked;
      this.lay();
    });
    const foldable = steps.some((_, number) => this.#foldable(number));
    this.element = make("div", {},
      make("div", { class: "bar tools" },
        button("+", "Zoom in", () => this.zoom(1 / ZOOM)), button("−", "Zoom out", () => this.zoom(ZOOM)), button("Fit", "Fit the picture", () => this.fit()),
        foldable ? make("label", { class: "inline" }, this.toggle, "Fold steps without a name") : "", legend()),
      this.svg);
    this.#listen();
  }

  /** Find the places, and draw. */
  async lay() {
    const { Graph, layout } = await import("./dagre/dagre.js");
    const { kept, edges } = this.#shown();
    const ends = new Set(edges.flatMap(({ from, to }) => [from, to]));
    let alone = kept.filter((number) => !ends.has(number) && this.#roomOf(this.steps[number]) === null);
    if (alone.length < GRID_FROM) alone = [];
    const size = (number) => ({ width: Math.max(short(this.steps[number].title).length * 7.3, 64) + 22, height: HEIGHT });
    const box = this.svg.getBoundingClientRect();
    const [wide, high] = [Math.max(box.width, 200), Math.max(box.height, 200)];
    const found = ["TB", "LR"].map((direction) => {
      const graph = new Graph({ compound: true, multigraph: true });
      graph.setGraph({ rankdir: direction, nodesep: 18, ranksep: direction === "TB" ? 26 : 34, edgesep: 12, marginx: 10, marginy: 10 });
      graph.setDefaultEdgeLabel(() => ({}));
      for (const number of kept) {
        if (alone.includes(number)) continue;
        const step = this.steps[number];
        graph.setNode(`${number}`, size(number));
        const room = this.#roomOf(step);
        if (room !== null) graph.setParent(`${number}`, this.#room(graph, room));
      }
      for (const { from, to, back, folded } of edges)
        graph.setEdge(...(back ? [`${to}`, `${from}`] : [`${from}`, `${to}`]), { back, folded, weight: back ? 1 : 2 }, back ? "back" : `over ${folded}`);
      layout(graph);
      const { width, height } = inGrid(graph, alone.map((number) => [`${number}`, size(number)]), wide / high);
      return { graph, down: direction === "TB", width, height, scale: Math.min(wide / width, high / height) };
    });
    const best = found[0].scale >= found[1].scale ? found[0] : found[1];
    this.size = [best.width, best.height];
    this.#draw(best.graph, best.down);
    this.fit();
  }

  /** The recursion whose room a step is in; a recursion is in its own room. */
  #roomOf(step) {
    return step.form === "recursion" ? step.name : step.loop;
  }

  /** The room of a recursion, inside the room of the recursion around it. */
  #room(graph, name) {
    const id = `room ${name}`;
    if (!graph.hasNode(id)) {
      graph.setNode(id, { name });
      const around = this.steps.find((step) => step.form === "recursion" && step.name === name)?.loop ?? null;
      if (around !== null && around !== name) graph.setParent(id, this.#room(graph, around));
    }
    return id;
  }

  #before(number) {
    return this.steps.flatMap((step, other) => (step.to.includes(number) || step.back.includes(number) ? [other] : []));
  }

  #foldable(number) {
    const { form, stores, topic, to, back, name, title } = this.steps[number];
    return form === "step" && !stores.length && !topic && title !== name && to.length + back.length === 1 && this.#before(number).length === 1;
  }

  /** The steps that are shown, and the edges between them with the steps that are folded into each. */
  #shown() {
    const folded = new Set(this.folds ? this.steps.flatMap((_, number) => (this.#foldable(number) && this.chosen !== number ? [number] : [])) : []);
    const kept = this.steps.flatMap((_, number) => (folded.has(number) ? [] : [number]));
    const edges = [];
    for (const from of kept)
      for (const [numbers, back] of [[this.steps[from].to, false], [this.steps[from].back, true]])
        for (let to of numbers) {
          const inside = [];
          let goesBack = back;
          while (folded.has(to)) {
            inside.push(to);
            const step = this.steps[to];
            goesBack ||= step.back.length > 0;
            [to] = [...step.to, ...step.back];
          }
          edges.push({ from, to: this.#entry(from, to), back: goesBack, folded: inside });
        }
    return { kept, edges };
  }

  /** The step at which an edge to a step ends: the seeds of a recursion enter its only variable. */
  #entry(from, to) {
    const { form, name } = this.steps[to];
    const variables = this.steps.flatMap((step, number) => (step.form === "variable" && step.loop === name ? [number] : []));
    return form === "recursion" && variables.length === 1 && this.steps[from].loop !== name ? variables[0] : to;
  }

  #draw(graph, down) {
    this.nodes.clear();
    const rooms = [];
    const edges = [];
    const bands = new Map();
    const badges = new Map();
    for (const id of graph.nodes()) {
      if (id.startsWith("room ")) continue;
      const { x, y, width, height } = graph.node(id);
      const [at, size] = down ? [y, height] : [x, width];
      bands.set(Math.round(at), Math.max(size, bands.get(Math.round(at)) ?? 0));
    }
    const boxes = [];
    for (const id of graph.nodes()) {
      const { x, y, width, height, name } = graph.node(id);
      if (id.startsWith("room ")) {
        const at = { x: x - width / 2, y: y - height / 2 - ROOM, width, height: height + 2 * ROOM };
        const label = draw("text", {}, short(`↻ ${name}`));
        rooms.push({ at, label, element: draw("g", { class: "room" }, draw("rect", { ...at, rx: 14 }), label) });
      } else boxes.push(this.#box(Number(id), x, y, width));
    }
    for (const edge of graph.edges()) {
      const { points, back, folded } = graph.edge(edge);
      const way = route(graph.node(edge.v), points, graph.node(edge.w), bands, down);
      edges.push(draw("path", { class: back ? "back" : "edge", d: curve(back ? way.reverse() : way, down), "marker-end": `url(#${back ? "tip-back" : "tip"})` }));
      if (folded.length) badges.set(Number(edge.w), [...(badges.get(Number(edge.w)) ?? []), ...folded]);
    }
    for (const [number, folded] of badges) {
      const { x, y, width } = graph.node(`${number}`);
      const at = { x: x - width / 2, y: y - HEIGHT / 2 };
      const names = folded.map((other) => this.steps[other].title).join(", ");
      boxes.push(draw("g", { class: "folded" }, draw("title", {}, `folded before it: ${names}`), draw("rect", { x: at.x - 10, y: at.y - 7, width: 26, height: 14, rx: 7 }), draw("text", { x: at.x + 3, y: at.y + 4 }, `+${folded.length}`)));
    }
    rooms.sort((one, other) => other.at.width * other.at.height - one.at.width * one.at.height);
    this.svg.replaceChildren(
      draw("defs", {}, ...["tip", "tip-back"].map((id) => draw("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, draw("path", { d: "M0 0 8 4 0 8z" })))),
      ...rooms.map(({ element }) => element), ...edges, ...boxes,
    );
    for (const { at, label } of rooms) placeName(label, at, edges);
    if (this.chosen !== null) this.nodes.get(this.chosen)?.element.classList.add("chosen");
    this.update(() => ({}));
  }

  #box(number, x, y, width) {
    const step = this.steps[number];
    const first = draw("text", { x, y: y + 4 }, short(step.title));
    const second = draw("text", { class: "second", x, y: y + 13 });
    const element = draw("g", { class: `node ${step.form}`, tabindex: 0, role: "button", "aria-label": `${step.form} ${step.name}`, "data-step": number },
      draw("title", {}, step.name), draw("rect", { x: x - width / 2, y: y - HEIGHT / 2, width, height: HEIGHT, rx: step.form === "topic" ? 6 : step.form === "step" || step.form === "exchange" ? 3 : 18 }),
      first, second);
    element.addEventListener("click", () => this.show(number));
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.show(number);
    });
    this.nodes.set(number, { element, first, second, y });
    return element;
  }

  /** Choose a step, as a click does. */
  show(number) {
    this.nodes.get(this.chosen)?.element.classList.remove("chosen");
    this.chosen = number;
    this.nodes.get(number)?.element.classList.add("chosen");
    this.choose(number);
  }

  /** Draw what changes: second lines, and classes by `classes(step)`. */
  update(classes) {
    for (const [number, { element, first, second, y }] of this.nodes) {
      const step = this.steps[number];
      second.textContent = this.tell(step);
      first.setAttribute("y", y + (second.textContent ? -2 : 4));
      for (const [name, has] of Object.entries(classes(step))) element.classList.toggle(name, has);
    }
  }

  fit() {
    this.view = [0, 0, ...this.size];
    this.#look();
  }

  /** Zoom by a factor, about a point of the picture or its middle. */
  zoom(by, [x, y] = [this.view[0] + this.view[2] / 2, this.view[1] + this.view[3] / 2]) {
    const width = Math.min(Math.max(this.view[2] * by, 120), 2 * this.size[0]);
    const factor = width / this.view[2];
    this.view = [x - (x - this.view[0]) * factor, y - (y - this.view[1]) * factor, width, this.view[3] * factor];
    this.#look();
  }

  #look() {
    this.svg.setAttribute("viewBox", this.view.map((value) => value.toFixed(1)).join(" "));
  }

  #point(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return [at.x, at.y];
  }

  #listen() {
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, this.#point(event));
    }, { passive: false });
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => (from = event.target.closest(".node") ? null : this.#point(event)));
    this.svg.addEventListener("pointermove", (event) => {
      if (from === null || !event.buttons) return;
      const [x, y] = this.#point(event);
      this.view = [this.view[0] + from[0] - x, this.view[1] + from[1] - y, this.view[2], this.view[3]];
      this.#look();
    });
    for (const end of ["pointerup", "pointerleave"]) this.svg.addEventListener(end, () => (from = null));
  }
}

/** The points of an edge: it leaves and enters in the middle of a side, and passes each layer of steps straight. */
function route(start, points, end, bands, down) {
  const along = (point) => (down ? point.y : point.x);
  const moved = (point, by) => (down ? { x: point.x, y: point.y + by } : { x: point.x + by, y: point.y });
  const half = (node) => (down ? node.height : node.width) / 2;
  const inner = points.slice(1, -1).flatMap((point) => {
    const band = (bands.get(Math.round(along(point))) ?? 0) / 2;
    return band ? [moved(point, -band), moved(point, band)] : [];
  });
  return [moved(start, half(start)), ...inner, moved(end, -half(end))];
}

/** A smooth path through points, in the direction of the layers at each of them. */
function curve(points, down) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let path = `M${at(points[0])}`;
  for (let index = 1; index < points.length; index++) {
    const [one, other] = [points[index - 1], points[index]];
    const middle = down ? (one.y + other.y) / 2 : (one.x + other.x) / 2;
    path += down ? `C${at({ x: one.x, y: middle })} ${at({ x: other.x, y: middle })} ${at(other)}` : `C${at({ x: middle, y: one.y })} ${at({ x: middle, y: other.y })} ${at(other)}`;
  }
  return path;
}

/** Put the name of a room into a corner through which no edge passes. */
function placeName(label, { x, y, width, height }, edges) {
  const points = edges.flatMap((edge) => Array.from({ length: Math.ceil(edge.getTotalLength() / 4) }, (_, step) => edge.getPointAtLength(4 * step)));
  for (const [across, down] of [[0, 0], [1, 0], [0, 1], [1, 1]]) {
    label.setAttribute("text-anchor", across ? "end" : "start");
    label.setAttribute("x", across ? x + width - 12 : x + 12);
    label.setAttribute("y", down ? y + height - 7 : y + 14);
    const box = label.getBBox();
    const crossed = points.some((at) => at.x > box.x - 3 && at.x < box.x + box.width + 3 && at.y > box.y - 3 && at.y < box.y + box.height + 3);
    if (!crossed) return;
  }
}

function legend() {
  const kinds = [["topic", "topic"], ["step", "step"], ["recursion", "recursion"], ["waiting", "records wait"], ["held", "no finite answer"]];
  return make("p", { class: "legend" }, ...kinds.map(([kind, text]) => make("span", { class: `key-${kind}` }, text)));
}
