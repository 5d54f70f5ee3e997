// Run in a page that holds one iframe for each page and width, named "page width": writes what is wrong with their layout into #findings.
'use strict';

const overlaps = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const visible = (e) => e.getClientRects().length > 0;

// A label of an axis names a unit, or its ticks do.
const withUnit = /(packets|packets per second|, %|, s|, ms|, us|, ns|, min|, h)$/;
const tickUnit = /^[0-9.]+ (ns|us|ms|s)$/;

function picture(svg, least, say) {
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const texts = [...svg.querySelectorAll('text')];
  const name = svg.querySelector('title').textContent;
  if (texts.length < 3) say(`${name}: only ${texts.length} texts`);
  texts.forEach((t, i) => {
    const r = t.getBoundingClientRect();
    if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1) say(`${name}: "${t.textContent}" leaves the picture`);
    const size = parseFloat(getComputedStyle(t).fontSize) * scale;
    if (size < least) say(`${name}: "${t.textContent}" is ${size.toFixed(1)} px high`);
    for (const other of texts.slice(i + 1)) {
      if (overlaps(r, other.getBoundingClientRect())) say(`${name}: "${t.textContent}" lies over "${other.textContent}"`);
    }
  });
  const ticked = texts.some((t) => tickUnit.test(t.textContent));
  const labels = texts.filter((t) => t.classList.contains('axis'));
  if (labels.length === 0) say(`${name}: no axis has a label`);
  for (const label of labels) {
    const logarithmic = label.textContent === 'time, logarithmic';
    if (logarithmic ? !ticked : !withUnit.test(label.textContent)) say(`${name}: axis "${label.textContent}" has no unit`);
  }
}

function check(frame) {
  const out = [];
  const say = (what) => out.push(`${frame.name}: ${what}`);
  const doc = frame.contentDocument, view = frame.contentWindow, width = Number(frame.name.split(' ')[1]);
  if (doc.compatMode !== 'CSS1Compat') say('quirks mode');
  if (view.innerWidth !== width) say(`the frame is ${view.innerWidth} px wide`);
  if (doc.documentElement.scrollWidth > width) say(`the body is ${doc.documentElement.scrollWidth} px wide`);
  const ids = [...doc.querySelectorAll('[id]')].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => say(`id ${id} is there twice`));
  for (const e of doc.querySelectorAll('[aria-labelledby]')) {
    for (const id of e.getAttribute('aria-labelledby').split(' ')) if (!doc.getElementById(id)) say(`no element has the id ${id}`);
  }
  const pictures = [...doc.querySelectorAll('figure svg[role=img]')].filter(visible);
  if (pictures.length !== doc.querySelectorAll('figure').length) say(`${pictures.length} pictures are visible in ${doc.querySelectorAll('figure').length} figures`);
  pictures.forEach((svg) => picture(svg, width < 500 ? 11 : 12, say));
  for (const e of doc.querySelectorAll('.headlines li, .banner, .banner *, .facts *, .ledger *, .keys li, h1, h2, p')) {
    if (visible(e) && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') say(`<${e.tagName} class="${e.className}"> overflows: "${e.textContent.slice(0, 40)}"`);
  }
  const first = doc.querySelector('.banner .verdict').getBoundingClientRect(), headlines = doc.querySelector('.headlines, main > section');
  if (headlines && first.bottom > headlines.getBoundingClientRect().top) say('the verdict is not the first thing on the page');
  const fetched = view.performance.getEntriesByType('resource').length;
  if (fetched > 0) say(`${fetched} resources were fetched`);
  return out;
}

window.addEventListener('load', () => {
  const frames = [...document.querySelectorAll('iframe')];
  const findings = frames.flatMap(check);
  const text = document.createElement('pre');
  text.id = 'findings';
  text.textContent = JSON.stringify({frames: frames.length, findings});
  frames.forEach((f) => f.remove());
  document.body.append(text);
});
