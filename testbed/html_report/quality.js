// Harm against size: three panels over the same bytes.

const NO_HARM = 1e-6; // KL below this is rounding: shown at the foot of a logarithmic axis

function drawQuality(host, state, field) {
  const done = state.shown.flatMap((method) => state.of(method).filter((request) => isDone(request) && request[field] !== null));
  const names = { kl: 'KL, nats', agreement: 'agreement, share of tokens', dppl: 'Δ perplexity' };
  const means = state.shown.map((method) => meanPoint(state, method, field)).filter((point) => point !== null);
  const text = means.map((point) => `${point.method.name}: ${point.value.toPrecision(3)} at ${megabytes(point.bytes)}`).join('; ');
  const chart = newChart(host, `${names[field]} against bytes received`, `${text || 'nothing was measured'}.`, 250);
  if (!chart) return;
  const { root, width } = chart;
  const box = { left: 46, right: width - 14, top: 24, bottom: 210 };
  root.append(label(4, 12, names[field]));
  const mostBytes = Math.max(1e3, ...done.map((request) => request.bytes));
  const x = linear(0, (mostBytes * 1.06) / 1e6, box.left, box.right);
  xAxis(root, x, box, 'received per request, MB', x.ticks(width / 70));
  const y = field === 'kl' ? klScale(root, box, done) : valueScale(root, box, done, field);
  const points = done.map((request) => {
    const method = state.methods.find((candidate) => candidate.name === request.method);
    const point = marker(method, x(request.bytes / 1e6), y(request[field]), { class: 'point', 'fill-opacity': 0, 'stroke-opacity': 0.8 });
    point.setAttribute('transform', `${point.getAttribute('transform')} scale(.7)`);
    const text = `${method.name}, request ${request.request}: ${request[field].toPrecision(3)}, ${megabytes(request.bytes)}`;
    chooseBy(point, text, () => state.choose(method.name, request.request, true));
    return point;
  });
  root.append(...points);
  reachByKeyboard(root, points);
  for (const { method, bytes, value } of means) {
    const point = marker(method, x(bytes / 1e6), y(value), { 'data-method': method.name, stroke: 'var(--paper)', 'stroke-width': 1 });
    point.setAttribute('transform', `${point.getAttribute('transform')} scale(1.25)`);
    point.append(hint(`${method.name}, mean: ${value.toPrecision(3)}, ${megabytes(bytes)}`));
    root.append(point);
  }
}

function meanPoint(state, method, field) {
  const requests = state.of(method).filter((request) => isDone(request) && request[field] !== null);
  if (!requests.length) return null;
  const mean = (name) => requests.reduce((sum, request) => sum + request[name], 0) / requests.length;
  return { method, bytes: mean('bytes'), value: mean(field) };
}

function klScale(root, box, requests) {
  const values = requests.map((request) => request.kl);
  const positive = values.filter((value) => value > NO_HARM);
  const least = positive.length ? 10 ** Math.floor(Math.log10(Math.min(...positive))) : 1e-3;
  const most = positive.length ? 10 ** Math.ceil(Math.log10(Math.max(...positive)) + 0.01) : 1;
  const none = values.some((value) => value <= NO_HARM);
  const foot = none ? box.bottom - 22 : box.bottom;
  const scale = logarithmic(least, most, foot, box.top);
  const powers = [];
  for (let power = Math.log10(least); power <= Math.log10(most) + 1e-9; power += 1) powers.push(10 ** Math.round(power));
  yAxis(root, scale, box, powers);
  if (none) root.append(label(box.left - 6, box.bottom - 2, '≈ 0', { 'text-anchor': 'end', class: 'soft' }));
  return (value) => (value <= NO_HARM ? box.bottom - 6 : scale(value));
}

function valueScale(root, box, requests, field) {
  const values = requests.map((request) => request[field]);
  let [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
  if (field === 'agreement') [least, most] = [Math.min(0.9, ...values), 1];
  const room = (most - least || 1) * 0.06;
  const scale = linear(least - room, most + (field === 'agreement' ? room / 2 : room), box.bottom, box.top);
  yAxis(root, scale, box, scale.ticks(5));
  return scale;
}
