// The page: what is shown, and what happens when a reader asks for something else.

const run = JSON.parse(byId('run-data').textContent);

const state = {
  stages: run.stages,
  levels: run.levels,
  requests: run.requests,
  sloMs: run.slo_ms,
  exploredMs: run.slo_ms,
  methods: run.methods.map((method, place) => ({ ...method, place })),
  shown: [],
  chosen: null,
  of: (method) => run.requests.filter((request) => request.method === method.name),
  choose,
};
const ttfts = run.requests.filter(isDone).map((request) => request.ttft_ms);
state.longestMs = Math.max(state.sloMs, ...ttfts);
state.sloRangeMs = [Math.min(state.sloMs / 2, ...ttfts.map((ms) => ms * 0.9)), 1.1 * Math.max(state.sloMs * 2, ...ttfts)];

const drawings = {
  distribution: drawDistribution,
  strip: drawStrip,
  attainment: drawAttainment,
  stages: drawStages,
  levels: drawLevels,
  kl: (host, now) => drawQuality(host, now, 'kl'),
  agreement: (host, now) => drawQuality(host, now, 'agreement'),
  dppl: (host, now) => drawQuality(host, now, 'dppl'),
  timeline: drawTimeline,
};

function draw(host) {
  if (state.shown.length) drawings[host.dataset.chart](host, state);
  else host.replaceChildren('No method is shown.');
}

const drawAll = () => document.querySelectorAll('.chart').forEach(draw);

function filter() {
  const names = new Set([...document.querySelectorAll('#methods input:checked')].map((box) => box.value));
  state.shown = state.methods.filter((method) => names.has(method.name));
  for (const row of document.querySelectorAll('tr[data-method], .reasons > [data-method]')) row.hidden = !names.has(row.dataset.method);
  showLegends();
  if (!state.chosen || !names.has(state.chosen.method)) {
    const [first] = state.shown;
    state.chosen = first ? (sameRequest(first.name) ?? null) : null;
  }
  showChosen();
  drawAll();
  explore();
}

const sameRequest = (name) => {
  const candidates = state.requests.filter((request) => request.method === name);
  return candidates.find((request) => request.request === state.chosen?.request) ?? candidates[0];
};

function showLegends() {
  for (const legend of document.querySelectorAll('.legend:not([id])')) {
    legend.replaceChildren(...state.shown.map((method) => {
      const sample = element('svg', { width: 30, height: 11, 'aria-hidden': 'true' });
      sample.append(line(0, 5.5, 30, 5.5, { stroke: `var(--method-${method.place})`, 'stroke-width': 2, 'stroke-dasharray': method.dash || 'none' }));
      sample.append(marker(method, 15, 5.5));
      return html('span', {}, sample, method.name);
    }));
  }
  byId('stage-legend').replaceChildren(...state.stages.map((stage) => legendBox(words(stage), { fill: `var(--stage-${stage})` })));
  const present = state.levels.filter((level) => state.shown.some((method) => method.levels[level.name]));
  byId('level-legend').replaceChildren(
    ...present.map((level) => legendBox(level.name, { fill: levelColour(level), stroke: 'var(--soft)' })),
  );
}

function choose(name, number, scroll = false) {
  state.chosen = state.requests.find((request) => request.method === name && request.request === Number(number)) ?? state.chosen;
  showChosen();
  draw(byId('timeline'));
  if (scroll) byId('request').scrollIntoView();
}

function showChosen() {
  fillChoices(state);
  showFacts(state);
  showTimelineLegend(state);
}

// The next of a list, round its ends.
const step = (list, current, by) => list[(list.indexOf(current) + by + list.length) % list.length];

function stepRequest(by) {
  if (!state.chosen) return;
  const next = step(state.requests.filter((request) => request.method === state.chosen.method), state.chosen, by);
  choose(next.method, next.request);
}

function stepMethod(by) {
  if (!state.chosen) return;
  const next = sameRequest(step(state.shown, state.shown.find((method) => method.name === state.chosen.method), by).name);
  choose(next.method, next.request);
}

const KEYS = {
  ArrowRight: () => stepRequest(1),
  ArrowLeft: () => stepRequest(-1),
  ArrowDown: () => stepMethod(1),
  ArrowUp: () => stepMethod(-1),
};

function explore() {
  byId('slo-output').textContent = seconds(state.exploredMs);
  byId('slo-attainment').replaceChildren(
    ...state.shown.map((method) => html('li', {}, `${method.name} ${percent(attainmentAt(state.of(method), state.exploredMs))}`)),
  );
}

// The slider goes over the chart's axis, and stops at the configured objective exactly.
const slider = byId('slo');
const sloScale = logarithmic(...state.sloRangeMs, 0, 200);
slider.value = Math.round(sloScale(state.sloMs));
slider.addEventListener('input', () => {
  const home = Number(slider.value) === Math.round(sloScale(state.sloMs));
  state.exploredMs = home ? state.sloMs : sloScale.invert(Number(slider.value));
  slider.setAttribute('aria-valuetext', seconds(state.exploredMs));
  draw(document.querySelector('[data-chart="attainment"]'));
  explore();
});
slider.setAttribute('aria-valuetext', seconds(state.sloMs));

document.documentElement.classList.add('scripted');
byId('methods').addEventListener('change', filter);
byId('choose-method').addEventListener('change', (event) => {
  const request = sameRequest(event.target.value);
  choose(request.method, request.request);
});
byId('choose-request').addEventListener('change', (event) => choose(state.chosen.method, event.target.value));
byId('previous').addEventListener('click', () => stepRequest(-1));
byId('next').addEventListener('click', () => stepRequest(1));
byId('timeline').addEventListener('keydown', (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
for (const form of document.forms) form.addEventListener('submit', (event) => event.preventDefault());

// Paper has no summaries to click: what is folded opens for printing, and closes again.
const paper = matchMedia('print');
paper.addEventListener('change', () => {
  for (const folded of document.querySelectorAll('details')) {
    if (paper.matches && !folded.open) folded.dataset.folded = '';
    if (paper.matches || 'folded' in folded.dataset) folded.open = paper.matches;
    if (!paper.matches) delete folded.dataset.folded;
  }
});

// the first to be shown: a request whose chunks came in many ways has most to say
const variety = (method) => Object.keys(method.levels).length;
const [richest] = [...state.methods].sort((a, b) => variety(b) - variety(a));
state.chosen = sameRequest(richest.name) ?? null;
filter();
let drawnWidth = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  drawAll();
}).observe(document.body);
