// Marks of requests, to be chosen by pointer or by keyboard: a chart is one stop of the Tab key, arrows go from mark to mark.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

// A mark is a button whose name has its value.
function chooseBy(point, text, choose) {
  point.setAttribute('role', 'button');
  point.setAttribute('aria-label', text);
  point.setAttribute('tabindex', -1);
  point.append(hint(text));
  point.addEventListener('click', choose);
}

// The marks of a chart in the order of the arrows.
function reachByKeyboard(root, points) {
  if (!points.length) return;
  // the parts of an image are nothing to assistive technology
  root.setAttribute('role', 'group');
  points[0].setAttribute('tabindex', 0);
  root.addEventListener('keydown', (event) => {
    const place = points.indexOf(event.target);
    if (place < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === 'Enter' || event.key === ' ') {
      event.target.dispatchEvent(new MouseEvent('click'));
      // what was chosen is shown there, and arrows go on from request to request
      byId('timeline').focus({ preventScroll: true });
    } else if (event.key in STEPS) {
      const next = points[Math.max(0, Math.min(points.length - 1, place + STEPS[event.key]))];
      event.target.setAttribute('tabindex', -1);
      next.setAttribute('tabindex', 0);
      next.focus();
    } else return;
    event.preventDefault();
  });
}
