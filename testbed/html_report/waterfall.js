// The timeline of one request: link, chunks and deadline on one axis from the arrival to the first token.

const LINK_HEIGHT = 78;
const HEAD = 44;
const GAP = 30;

// Rows in order: manifest and tokens, each chunk, what belongs to no chunk, the question.
function rowsOf(request) {
  const chunks = new Map();
  const others = new Map();
  for (const mark of request.timeline) {
    const [rows, key] = mark.chunk === undefined ? [others, mark.kind] : [chunks, mark.chunk];
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(mark);
  }
  const named = { index: 'manifest', question_prefill: 'question' };
  const rest = [...others].map(([kind, marks]) => ({ name: named[kind] ?? words(kind), marks, kind }));
  return [
    ...rest.filter((row) => row.kind === 'index'),
    ...[...chunks].sort((a, b) => a[0] - b[0]).map(([index, marks]) => ({ name: `chunk ${index}`, short: `${index}`, marks })),
    ...rest.filter((row) => row.kind !== 'index' && row.kind !== 'question_prefill'),
    ...rest.filter((row) => row.kind === 'question_prefill'),
  ];
}

// Bars that overlap in time get lanes of their own.
function intoLanes(marks) {
  const ends = [];
  const placed = marks.map((mark) => {
    if (mark.start_s === mark.end_s) return { mark, lane: 0 };
    let lane = ends.findIndex((end) => end <= mark.start_s + 1e-4);
    if (lane < 0) lane = ends.length;
    ends[lane] = mark.end_s;
    return { mark, lane };
  });
  return { placed, lanes: Math.max(1, ends.length) };
}

function drawTimeline(host, state) {
  const request = state.chosen;
  if (!request) {
    host.replaceChildren('No method is shown.');
    return;
  }
  const rows = rowsOf(request).map((row) => ({ ...row, ...intoLanes(row.marks) }));
  const lanes = rows.reduce((sum, row) => sum + row.lanes, 0);
  const laneHeight = Math.max(7, Math.min(20, 640 / Math.max(1, lanes)));
  const rowsTop = HEAD + LINK_HEIGHT + GAP;
  const height = rowsTop + lanes * laneHeight + 40;
  const chart = newChart(host, `Timeline of request ${request.request} by ${request.method}`, describeRequest(request, state), height);
  if (!chart) return;
  const { root, width } = chart;
  const narrow = width < 480;
  const box = { left: narrow ? 58 : 74, right: width - 10, top: HEAD, bottom: rowsTop + lanes * laneHeight };
  const endS = (request.ttft_ms ?? 0) / 1000;
  const lastS = Math.max(endS, state.sloMs / 1000, ...request.timeline.map((mark) => mark.end_s));
  const x = linear(0, lastS * 1.02, box.left, box.right);
  xAxis(root, x, box, 'time since the arrival, s', x.ticks(width / 80));
  drawLink(root, request, x, { ...box, bottom: HEAD + LINK_HEIGHT }, narrow);
  const due = request.timeline.find((mark) => mark.deadline_s !== undefined)?.deadline_s;
  if (due > 0) verticalMark(root, x(due), box, narrow ? 'chunks due' : `chunks due ${seconds(1000 * due)}`, 'due', HEAD - 29);
  verticalMark(root, x(state.sloMs / 1000), box, `SLO ${plainSeconds(state.sloMs / 1000)}`, 'slo', HEAD - 17);
  if (isDone(request)) verticalMark(root, x(endS), box, `first token ${seconds(request.ttft_ms)}`, 'end', HEAD - 5);
  let y = rowsTop;
  for (const row of rows) {
    drawRow(root, state, row, x, y, laneHeight, box, narrow);
    y += row.lanes * laneHeight;
  }
}

function drawLink(root, request, x, box, narrow) {
  const { edges_s: edges, capacity_mbps: capacity, delivered_mbps: delivered } = request.link;
  const title = capacity.length ? 'link, Mbit/s' : 'link: no samples';
  root.append(label(narrow ? 2 : box.left - 6, box.bottom + 18, title, { 'text-anchor': narrow ? 'start' : 'end', class: 'soft' }));
  if (!capacity.length) return;
  const estimates = request.timeline.filter((mark) => mark.estimate_mbps !== undefined);
  const most = Math.max(1, ...capacity, ...delivered, ...estimates.map((mark) => mark.estimate_mbps)) * 1.05;
  const y = linear(0, most, box.bottom, box.top + 4);
  yAxis(root, y, box, y.ticks(3));
  const end = box.right;
  const inside = edges.filter((edge) => x(edge) < end).length;
  const steps = (rates) =>
    rates.slice(0, inside).map((rate, i) => `${i ? 'H' : 'M'}${x(edges[i])}${i ? 'V' : ' '}${y(rate)}`).join('');
  const last = Math.min(end, x(edges.at(-1)));
  root.append(
    element('path', { d: `${steps(delivered)}H${last}V${y(0)}H${x(edges[0])}Z`, fill: 'var(--delivered)' }, hint('what arrived')),
    element('path', { d: `${steps(capacity)}H${last}`, fill: 'none', stroke: 'var(--capacity)', 'stroke-width': 1.5 }, hint('what the trace allowed')),
    line(box.left, box.bottom, box.right, box.bottom, { class: 'axis' }),
  );
  for (const mark of estimates) {
    const diamond = element('path', { d: 'M0-4L4 0L0 4L-4 0Z', transform: `translate(${x(mark.start_s)} ${y(mark.estimate_mbps)})`, fill: 'var(--accent)', stroke: 'var(--paper)' });
    diamond.append(hint(`estimate ${mbps(mark.estimate_mbps)} at ${seconds(1000 * mark.start_s)}`));
    root.append(diamond);
  }
}

function drawRow(root, state, row, x, top, laneHeight, box, narrow) {
  const height = row.lanes * laneHeight;
  root.append(line(box.left, top + height, box.right, top + height, { class: 'grid' }));
  if (laneHeight >= 9) {
    const name = narrow ? (row.short ?? row.name.slice(0, 9)) : row.name;
    root.append(label(box.left - 6, top + height / 2 + 4, name, { 'text-anchor': 'end', class: 'soft' }));
  }
  for (const { mark, lane } of row.placed) drawMark(root, state, mark, x, top + lane * laneHeight, laneHeight);
  if (laneHeight >= 11) writeLevel(root, row, x, top + height / 2 + 4, box);
}

// Fetches are full bars in the colour of their level, computation is lower and hatched or plain in its stage's colour.
function drawMark(root, state, mark, x, top, laneHeight) {
  const [start, end] = [x(mark.start_s), x(mark.end_s)];
  const shape = mark.start_s === mark.end_s ? momentShape(mark, start, top, laneHeight) : null;
  const drawn = shape ?? element('rect', { x: start, width: Math.max(1.5, end - start), ...barStyle(root, state, mark, top, laneHeight) });
  drawn.append(hint(describeMark(mark)));
  drawn.setAttribute('data-kind', mark.kind);
  root.append(drawn);
}

function barStyle(root, state, mark, top, laneHeight) {
  const full = { y: top + 1.5, height: laneHeight - 3 };
  const low = { y: top + laneHeight * 0.25, height: laneHeight * 0.5 };
  const level = state.levels.find((candidate) => candidate.name === mark.level);
  switch (mark.kind) {
    case 'index':
      return { ...full, fill: 'var(--stage-wait)' };
    case 'fetch':
      return { ...full, fill: level ? `var(--level-${level.shade})` : 'var(--stage-fetch)', stroke: 'var(--soft)', 'stroke-width': 0.5 };
    case 'decode':
      return { ...low, fill: 'var(--stage-decode)' };
    case 'recompute':
      return { ...full, fill: hatch(root, `hatch-${(numHatches += 1)}`, 'var(--stage-recompute)') };
    case 'question_prefill':
      return { ...full, fill: 'var(--stage-question_prefill)' };
    default:
      // cancelled, failed or not known to this page
      return { ...full, fill: 'none', stroke: mark.kind.endsWith('_failed') ? 'var(--bad)' : 'var(--ink)', 'stroke-dasharray': '3 2' };
  }
}

function momentShape(mark, x, top, laneHeight) {
  const middle = top + laneHeight / 2;
  if (mark.kind === 'decision') return element('path', { d: `M${x - 3} ${top}h6l-3 5z`, fill: 'var(--soft)' });
  const cross = `M${x - 4} ${middle - 4}l8 8m0-8l-8 8`;
  const plus = `M${x - 4} ${middle}h8m-4-4v8`;
  const failed = mark.kind.endsWith('_failed');
  return element('path', { d: failed ? cross : plus, stroke: failed ? 'var(--bad)' : 'var(--ink)', 'stroke-width': 2, fill: 'none' });
}

// How the chunk came, behind its last bar or, where that has no room, before its first.
function writeLevel(root, row, x, y, box) {
  const last = row.marks.findLast((mark) => mark.kind === 'fetch' || mark.kind === 'recompute');
  if (!last) return;
  const text = last.bytes === undefined ? last.level : `${last.level}, ${megabytes(last.bytes)}`;
  const right = x(Math.max(...row.marks.map((mark) => mark.end_s))) + 5;
  const left = x(Math.min(...row.marks.map((mark) => mark.start_s))) - 6;
  const fits = [text, last.level].find((candidate) => right + candidate.length * LETTER_PX < box.right);
  if (fits) root.append(label(right, y, fits, { class: 'halo' }));
  else if (left - last.level.length * LETTER_PX > box.left) root.append(label(left, y, last.level, { 'text-anchor': 'end', class: 'halo' }));
}

function describeMark(mark) {
  const chunk = mark.chunk === undefined ? '' : ` of chunk ${mark.chunk}`;
  const level = mark.level === undefined ? '' : `, ${mark.level}`;
  const size = mark.bytes === undefined ? '' : `, ${megabytes(mark.bytes)}`;
  const time =
    mark.start_s === mark.end_s
      ? `at ${seconds(1000 * mark.start_s)}`
      : `${seconds(1000 * mark.start_s)} to ${seconds(1000 * mark.end_s)}`;
  return `${words(mark.kind)}${chunk}${level}${size}: ${time}${mark.note ? `. ${mark.note}` : ''}`;
}

function describeRequest(request, state) {
  const chunks = countsOf(request.levels);
  return `${outcomeOf(request, state.sloMs)} ${chunks ? `Chunks: ${chunks}.` : ''} Every event stands in the table below.`;
}

function outcomeOf(request, sloMs) {
  if (!isDone(request)) return `Came to no first token (${request.status}): ${request.error}`;
  const distance = seconds(Math.abs(request.ttft_ms - sloMs));
  const verdict = request.violation ? `missed the SLO by ${distance}` : `met the SLO with ${distance} to spare`;
  return `TTFT ${seconds(request.ttft_ms)}: ${verdict}.`;
}
