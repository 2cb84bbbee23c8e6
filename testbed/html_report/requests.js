// The request that is looked at: its choice, its figures, its events.

const byId = (id) => document.getElementById(id);

function fillChoices(state) {
  byId('choose-method').replaceChildren(...state.shown.map((method) => html('option', { value: method.name }, method.name)));
  const requests = state.chosen ? state.requests.filter((request) => request.method === state.chosen.method) : [];
  byId('choose-request').replaceChildren(
    ...requests.map((request) => html('option', { value: request.request }, `${request.request}: ${briefly(request)}`)),
  );
  if (state.chosen) {
    byId('choose-method').value = state.chosen.method;
    byId('choose-request').value = state.chosen.request;
  }
  for (const id of ['choose-method', 'choose-request', 'previous', 'next']) byId(id).disabled = !state.chosen;
}

const briefly = (request) => (isDone(request) ? `${seconds(request.ttft_ms)}, ${request.violation ? 'missed' : 'met'}` : request.status);

function showFacts(state) {
  const request = state.chosen;
  byId('request-outcome').textContent = request
    ? `Request ${request.request}, ${request.method}. ${outcomeOf(request, state.sloMs)}`
    : 'No method is shown.';
  const facts = request ? factsOf(request, state) : [];
  byId('request-facts').replaceChildren(
    ...facts.map(([name, text]) => html('div', {}, html('dt', {}, name), html('dd', {}, text))),
  );
  byId('events').tBodies[0].replaceChildren(...(request ? request.timeline.map(eventRow) : []));
}

function factsOf(request, state) {
  const stages = state.stages.filter((stage) => request.stages_ms[stage]);
  return [
    ['context', request.context],
    ['place in the trace', `${request.trace_offset_s.toFixed(1)} s`],
    ...(request.shared_with ? [['other requests in its batch', `${request.shared_with}`]] : []),
    ['received', megabytes(request.bytes)],
    ['chunks', countsOf(request.levels) || '–'],
    ['link, mean', orDash(request.link_mbps, mbps)],
    ['KL', orDash(request.kl, (value) => `${value.toFixed(4)} nats`)],
    ['agreement', orDash(request.agreement, (value) => value.toFixed(3))],
    ['Δ perplexity', orDash(request.dppl, (value) => value.toFixed(3))],
    ...stages.map((stage) => [words(stage), seconds(request.stages_ms[stage])]),
  ];
}

function eventRow(mark) {
  const cells = [
    orDash(mark.chunk, String),
    mark.start_s.toFixed(3),
    mark.end_s.toFixed(3),
    mark.level ?? '–',
    orDash(mark.bytes, (bytes) => (bytes / 1e6).toFixed(3)),
    orDash(mark.estimate_mbps, (rate) => rate.toFixed(1)),
    mark.note ?? '',
  ];
  return html('tr', {}, html('th', { scope: 'row' }, words(mark.kind)), ...cells.map((text) => html('td', {}, text)));
}

function showTimelineLegend(state) {
  const timeline = state.chosen ? state.chosen.timeline : [];
  const kinds = new Set(timeline.map((mark) => mark.kind));
  const fetched = new Set(timeline.filter((mark) => mark.kind === 'fetch').map((mark) => mark.level));
  const items = state.levels
    .filter((level) => fetched.has(level.name))
    .map((level) => legendBox(`fetch of ${level.name}`, { fill: `var(--level-${level.shade})`, stroke: 'var(--soft)' }));
  const named = {
    index: ['manifest and tokens', { fill: 'var(--stage-wait)' }],
    decode: ['decode', { fill: 'var(--stage-decode)', y: 3, height: 5 }],
    recompute: ['recompute (hatched)', { fill: 'var(--stage-recompute)' }],
    question_prefill: ['prefill of the question', { fill: 'var(--stage-question_prefill)' }],
  };
  for (const kind of Object.keys(named).filter((candidate) => kinds.has(candidate))) items.push(legendBox(...named[kind]));
  if (kinds.has('decision')) items.push(html('span', {}, '▾ decision'));
  for (const kind of kinds) {
    if (kind === 'fetch' || kind === 'decision' || kind in named) continue;
    const stroke = kind.endsWith('_failed') ? 'var(--bad)' : 'var(--ink)';
    items.push(legendBox(`${words(kind)} (dashed, or a mark)`, { fill: 'none', stroke, 'stroke-dasharray': '3 2' }));
  }
  byId('timeline-legend').replaceChildren(...items);
}
