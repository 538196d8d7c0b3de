// What style sheets cannot do for the legend: it keeps to the most lines that may be
// shown at once, and puts the names of those that are beside each other again.
(function () {
  'use strict';
  const legend = document.querySelector('.legend');
  if (!legend) return;
  const boxes = [...legend.querySelectorAll('input')];
  const most = Number(legend.dataset.most);
  const slot = (box) => box.id.slice('show-'.length);

  // As label_heights() in line_chart.cpp.
  function spread(names) {
    const top = Number(names.dataset.top);
    const bottom = Number(names.dataset.bottom);
    const labels = boxes.filter((box) => box.checked)
      .map((box) => names.querySelector('.run-' + slot(box))).filter(Boolean)
      .map((label) => ({ label, end: Number(label.dataset.y), at: Number(label.dataset.y) }))
      .sort((a, b) => a.end - b.end);
    const gap = Math.min(Number(names.dataset.gap), (bottom - top) / (labels.length + 1));
    labels.forEach((one, i) => {
      if (i > 0) one.at = Math.max(one.at, labels[i - 1].at + gap);
    });
    labels.reduceRight((lowest, one) => {
      one.at = Math.min(one.at, lowest);
      return one.at - gap;
    }, bottom);
    labels.forEach(({ label, end, at }) => {
      const text = label.querySelector('text');
      text.setAttribute('y', at + 4);
      label.querySelector('.leader').setAttribute(
        'd', `M${label.dataset.x} ${end}L${text.getAttribute('x') - 5} ${at}`);
    });
  }

  function update() {
    const full = boxes.filter((box) => box.checked).length >= most;
    boxes.forEach((box) => {
      box.disabled = full && !box.checked;
      box.parentElement.title = box.disabled ? 'hide another first' : '';
    });
    document.querySelectorAll('.labels').forEach(spread);
  }

  function button(words, shows) {
    const made = document.createElement('button');
    made.type = 'button';
    made.textContent = words;
    made.addEventListener('click', () => {
      boxes.forEach((box, i) => { box.checked = shows(i); });
      update();
    });
    legend.append(made);
  }

  if (boxes.length > most) button('the first ' + most, (i) => i < most);
  button('none', () => false);
  boxes.forEach((box) => box.addEventListener('change', update));
  update();
}());
