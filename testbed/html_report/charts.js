// Charts over all requests: distribution, attainment, stages, levels.

const isDone = (request) => request.ttft_ms !== null;
const sortedTtfts = (requests) => requests.filter(isDone).map((request) => request.ttft_ms).sort((a, b) => a - b);

function attainmentAt(requests, sloMs) {
  return requests.filter((request) => isDone(request) && request.ttft_ms <= sloMs).length / requests.length;
}

function stepPath(ttfts, issued, x, y, fromX, toX) {
  let path = `M${fromX} ${y(0)}`;
  ttfts.forEach((ttft, i) => {
    path += `H${x(ttft)}V${y((i + 1) / issued)}`;
  });
  return `${path}H${toX}`;
}

function curve(root, method, path) {
  root.append(
    element('path', {
      d: path,
      fill: 'none',
      stroke: `var(--method-${method.place})`,
      'stroke-width': 2,
      'stroke-dasharray': method.dash || 'none',
      'stroke-linejoin': 'round',
      'data-method': method.name,
    }),
  );
}

function drawDistribution(host, state) {
  const chart = newChart(host, 'Distribution of TTFT by method', describeTtfts(state), 250);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: 44, right: width - 12, top: 20, bottom: 230 };
  const x = linear(0, state.longestMs * 1.04, box.left, box.right);
  const y = linear(0, 1, box.bottom, box.top);
  yAxis(root, y, box, [0, 0.25, 0.5, 0.75, 1], percent);
  for (const value of x.ticks(6)) root.append(line(x(value), box.top, x(value), box.bottom, { class: 'grid' }));
  root.append(line(box.left, box.bottom, box.right, box.bottom, { class: 'axis' }));
  verticalMark(root, x(state.sloMs), box, `SLO ${plainSeconds(state.sloMs / 1000)}`, 'slo');
  for (const method of state.shown) {
    const requests = state.of(method);
    curve(root, method, stepPath(sortedTtfts(requests), requests.length, x, y, box.left, box.right));
  }
}

function describeTtfts(state) {
  const parts = state.shown.map((method) => {
    const ttfts = sortedTtfts(state.of(method));
    if (!ttfts.length) return `${method.name}: no request came to a first token`;
    return `${method.name}: from ${seconds(ttfts[0])} to ${seconds(ttfts.at(-1))}`;
  });
  return `${parts.join('; ')}. The SLO is ${seconds(state.sloMs)}.`;
}

function drawStrip(host, state) {
  const rows = state.shown;
  const chart = newChart(host, 'TTFT of each request by method', describeTtfts(state), 44 + 22 * rows.length);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: 44, right: width - 12, top: 4, bottom: 8 + 22 * rows.length };
  const x = linear(0, state.longestMs * 1.04, box.left, box.right);
  const inSeconds = linear(0, (state.longestMs * 1.04) / 1000, box.left, box.right);
  xAxis(root, inSeconds, box, 'TTFT, s', inSeconds.ticks(6));
  root.append(line(x(state.sloMs), box.top, x(state.sloMs), box.bottom, { class: 'slo', 'stroke-width': 1.5 }));
  const points = [];
  rows.forEach((method, row) => {
    const y = box.top + 13 + 22 * row;
    root.append(marker(method, box.left - 12, y));
    const done = state.of(method).filter(isDone).sort((a, b) => a.ttft_ms - b.ttft_ms);
    const lost = state.of(method).filter((request) => !isDone(request));
    const size = done.length > CROWD ? 0.6 : 1;
    points.push(...done.map((request) => requestPoint(state, method, request, x(request.ttft_ms), y, size)));
    if (lost.length) {
      root.append(label(box.right, y + 4, `${lost.length} × no first token`, { 'text-anchor': 'end', class: 'halo' }));
    }
  });
  root.append(...points);
  reachByKeyboard(root, points);
}

const CROWD = 40; // so many marks in a row need to be small

// Hollow where the objective was missed: the shape says it as well as the place.
function requestPoint(state, method, request, x, y, size) {
  const verdict = request.violation ? 'missed' : 'met';
  const point = marker(method, x, y, {
    class: 'point',
    'data-method': method.name,
    transform: `translate(${x} ${y}) scale(${size})`,
    'stroke-width': 1.4,
    'stroke-opacity': size,
    'fill-opacity': request.violation ? 0 : 0.85,
  });
  const text = `${method.name}, request ${request.request}: ${seconds(request.ttft_ms)}, ${verdict}`;
  chooseBy(point, text, () => state.choose(method.name, request.request, true));
  return point;
}

function drawAttainment(host, state) {
  const text = state.shown.map((method) => `${method.name} ${percent(attainmentAt(state.of(method), state.sloMs))}`).join(', ');
  const chart = newChart(host, 'Attainment against the SLO', `At ${seconds(state.sloMs)}: ${text}.`, 266);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: 44, right: width - 12, top: 20, bottom: 230 };
  const [from, to] = state.sloRangeMs;
  const x = logarithmic(from, to, box.left, box.right);
  const inSeconds = logarithmic(from / 1000, to / 1000, box.left, box.right);
  const y = linear(0, 1, box.bottom, box.top);
  yAxis(root, y, box, [0, 0.25, 0.5, 0.75, 1], percent);
  xAxis(root, inSeconds, box, 'SLO on TTFT, s', inSeconds.ticks(width / 90));
  verticalMark(root, x(state.sloMs), box, `SLO ${plainSeconds(state.sloMs / 1000)}`, 'slo');
  for (const method of state.shown) {
    const requests = state.of(method);
    curve(root, method, stepPath(sortedTtfts(requests), requests.length, x, y, box.left, box.right));
  }
  for (const method of state.shown) {
    root.append(marker(method, x(state.sloMs), y(attainmentAt(state.of(method), state.sloMs))));
  }
  if (state.exploredMs !== state.sloMs) {
    const at = x(state.exploredMs);
    root.append(line(at, box.top, at, box.bottom, { stroke: 'var(--accent)', 'stroke-width': 1.5 }));
  }
}

function drawStages(host, state) {
  const rows = state.shown;
  const chart = newChart(host, 'Mean stages of the TTFT by method', describeStages(state), 56 + 30 * rows.length);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: nameWidth(rows), right: width - 56, top: 18, bottom: 22 + 30 * rows.length };
  const longest = Math.max(state.sloMs, ...rows.map((method) => sumOf(method.stages_ms)));
  const x = linear(0, longest * 1.02, box.left, box.right);
  const inSeconds = linear(0, (longest * 1.02) / 1000, box.left, box.right);
  xAxis(root, inSeconds, box, 'mean TTFT, s', inSeconds.ticks(width / 90));
  const texts = []; // drawn last: the line of the SLO must not cross them
  rows.forEach((method, row) => {
    const y = box.top + 6 + 30 * row;
    const segments = state.stages.map((stage) => ({
      size: method.stages_ms[stage] ?? 0,
      fill: `var(--stage-${stage})`,
      ground: `var(--stage-${stage})`,
      ink: '#14171a',
      name: words(stage),
      text: seconds(method.stages_ms[stage] ?? 0),
    }));
    const end = stack(root, texts, segments, x, y, 20);
    nameOf(root, method, box.left, y + 14);
    const total = sumOf(method.stages_ms);
    texts.push(label(end + 5, y + 14, total ? seconds(total) : 'no first token', { class: 'halo' }));
  });
  verticalMark(root, x(state.sloMs), box, `SLO ${plainSeconds(state.sloMs / 1000)}`, 'slo');
  root.append(...texts);
}

const sumOf = (numbers) => Object.values(numbers).reduce((sum, value) => sum + (value ?? 0), 0);
const nameWidth = (methods) => Math.min(130, 34 + LETTER_PX * Math.max(4, ...methods.map((method) => method.name.length)));

function describeStages(state) {
  const parts = state.shown.map((method) => {
    const stages = Object.entries(method.stages_ms).filter(([, ms]) => ms);
    return `${method.name}: ${stages.map(([stage, ms]) => `${words(stage)} ${seconds(ms)}`).join(', ') || 'none'}`;
  });
  return `${parts.join('; ')}.`;
}

function nameOf(root, method, right, y) {
  const room = Math.floor((right - 22) / LETTER_PX);
  const shown = method.name.length > room ? `${method.name.slice(0, room - 1)}…` : method.name;
  root.append(marker(method, 8, y - 4));
  root.append(label(right - 8, y, shown, { 'text-anchor': 'end' }));
}

// A stacked bar; what fits into a segment goes into `texts`, the whole shows when the pointer rests on it.
function stack(root, texts, segments, x, y, height) {
  let sum = 0;
  for (const { size, fill, ground, ink, name, text } of segments.filter((segment) => segment.size > 0)) {
    const [start, end] = [x(sum), x(sum + size)];
    const bar = element('rect', { x: start, y, width: end - start, height, fill, stroke: 'var(--paper)', 'stroke-width': 0.8 });
    bar.append(hint(`${name}: ${text}`));
    root.append(bar);
    const fitting = [`${name} ${text}`, name, text].find((candidate) => candidate.length * LETTER_PX + 8 < end - start);
    if (fitting) {
      const written = label((start + end) / 2, y + height / 2 + 4, fitting, { 'text-anchor': 'middle', class: 'inside' });
      written.style.fill = ink;
      written.style.stroke = ground;
      texts.push(written);
    }
    sum += size;
  }
  return x(sum);
}

function drawLevels(host, state) {
  const rows = state.shown;
  const text = rows.map((method) => `${method.name}: ${countsOf(method.levels) || 'none'}`).join('; ');
  const chart = newChart(host, 'Chunks of each method by how they came', `${text}.`, 46 + 30 * rows.length);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: nameWidth(rows), right: width - 70, top: 4, bottom: 10 + 30 * rows.length };
  const x = linear(0, 1, box.left, box.right);
  xAxis(root, x, box, 'share of chunks', [0, 0.25, 0.5, 0.75, 1], percent);
  rows.forEach((method, row) => {
    const y = box.top + 4 + 30 * row;
    const total = sumOf(method.levels);
    const present = state.levels.filter((level) => method.levels[level.name]);
    const segments = present.map((level) => ({
      size: method.levels[level.name] / total,
      fill: levelFill(root, level),
      ground: levelColour(level),
      ink: levelInk(level),
      name: level.name,
      text: `${method.levels[level.name]}`,
    }));
    const texts = [];
    stack(root, texts, segments, x, y, 20);
    root.append(...texts);
    nameOf(root, method, box.left, y + 14);
    root.append(label(box.right + 6, y + 14, `${total} chunks`, { class: 'soft' }));
  });
}

const countsOf = (levels) => Object.entries(levels).map(([name, count]) => `${count} × ${name}`).join(', ');

let numHatches = 0;

const levelColour = (level) => (level.name === 'recompute' ? 'var(--stage-recompute)' : `var(--level-${level.shade})`);

function levelFill(root, level) {
  if (level.name === 'recompute') return hatch(root, `hatch-${(numHatches += 1)}`, levelColour(level));
  return levelColour(level);
}

function levelInk(level) {
  if (level.name === 'recompute') return '#14171a';
  return level.shade < 4 ? 'var(--on-dark)' : 'var(--on-light)';
}
