// A little SVG: elements, scales, axes. Charts are drawn at the width they have, so that their text keeps its size.

const SVG = 'http://www.w3.org/2000/svg';
const LETTER_PX = 6.2; // mean width of a letter at 11 px: for what must not overlap

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const label = (x, y, text, attributes = {}) => element('text', { x, y, ...attributes }, text);
const line = (x1, y1, x2, y2, attributes) => element('line', { x1, y1, x2, y2, ...attributes });

// A text that appears when the pointer rests on its parent.
const hint = (text) => element('title', {}, text);

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

let numCharts = 0;

// An empty picture in place of what `host` shows; null where the host has no width, as it is hidden.
function newChart(host, title, description, height) {
  const width = Math.floor(host.clientWidth);
  host.replaceChildren();
  if (width < 100) return null;
  const id = `chart-${(numCharts += 1)}`;
  const root = element(
    'svg',
    { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-labelledby': `${id}-title ${id}-text` },
    element('title', { id: `${id}-title` }, title),
    element('desc', { id: `${id}-text` }, description),
  );
  host.append(root);
  return { root, width, height };
}

function linear(from, to, start, end) {
  const scale = (value) => start + ((value - from) / (to - from)) * (end - start);
  scale.ticks = (count) => {
    const rough = (to - from) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
    const first = Math.ceil(from / step - 1e-9);
    const found = [];
    for (let i = first; i * step <= to + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
    return found;
  };
  return scale;
}

function logarithmic(from, to, start, end) {
  const straight = linear(Math.log10(from), Math.log10(to), start, end);
  const scale = (value) => straight(Math.log10(value));
  scale.invert = (position) => 10 ** (Math.log10(from) + ((position - start) / (end - start)) * Math.log10(to / from));
  scale.ticks = (count) => {
    const span = Math.log10(to / from);
    const factors = span > count ? [1] : span > count / 3 ? [1, 3] : span > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
    const found = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power += 1) {
      for (const factor of factors) {
        const value = Number((factor * 10 ** power).toPrecision(12));
        if (value >= from * 0.999 && value <= to * 1.001) found.push(value);
      }
    }
    return found;
  };
  return scale;
}

const tick = (value) => String(Number(value.toPrecision(6)));

function xAxis(root, scale, box, name, ticks, write = tick) {
  for (const value of ticks) {
    const x = scale(value);
    root.append(line(x, box.top, x, box.bottom, { class: 'grid' }));
    root.append(label(x, box.bottom + 14, write(value), { 'text-anchor': 'middle', class: 'soft' }));
  }
  root.append(line(box.left, box.bottom, box.right, box.bottom, { class: 'axis' }));
  root.append(label((box.left + box.right) / 2, box.bottom + 29, name, { 'text-anchor': 'middle' }));
}

function yAxis(root, scale, box, ticks, write = tick) {
  for (const value of ticks) {
    const y = scale(value);
    root.append(line(box.left, y, box.right, y, { class: 'grid' }));
    root.append(label(box.left - 6, y + 4, write(value), { 'text-anchor': 'end', class: 'soft' }));
  }
}

// A named vertical line over a chart; its name turns to the left where the right has no room.
function verticalMark(root, x, box, text, style, nameY = box.top - 5) {
  root.append(line(x, nameY + 3, x, box.bottom, { class: style, 'stroke-width': 1.5 }));
  const length = text.length * LETTER_PX;
  const turns = x + length > box.right;
  // paper behind the name, for lines of other names may run there
  root.append(element('rect', { x: turns ? x - 3 - length : x + 3, y: nameY - 10, width: length, height: 12, fill: 'var(--paper)' }));
  root.append(label(turns ? x - 3 : x + 3, nameY, text, { 'text-anchor': turns ? 'end' : 'start' }));
}

function marker(method, x, y, attributes = {}) {
  const colour = `var(--method-${method.place})`;
  return element('path', { d: method.marker, transform: `translate(${x} ${y})`, fill: colour, stroke: colour, ...attributes });
}

function hatch(root, id, colour) {
  root.append(
    element(
      'pattern',
      { id, width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      element('rect', { width: 5, height: 5, fill: colour }),
      line(0, 0, 0, 5, { stroke: 'var(--paper)', 'stroke-width': 1.6, opacity: 0.75 }),
    ),
  );
  return `url(#${id})`;
}

// Sample of a colour for a legend.
function legendBox(text, attributes) {
  const sample = element('svg', { width: 16, height: 11, 'aria-hidden': 'true' });
  sample.append(element('rect', { x: 0.5, y: 0.5, width: 15, height: 10, ...attributes }));
  return html('span', {}, sample, text);
}
