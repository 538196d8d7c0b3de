// Draws the report's charts from the JSON in the page. Each figure says in its
// data-points how many points of runs it drew, in data-document-points how many
// figures of the documents.
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const palette = ['#3b76d6', '#e0742c', '#2e9b63', '#c9418a', '#8a63d2', '#b3881a',
    '#1b9aaa', '#d14a4a', '#6b7a8f', '#7a9a1f'];
  const dashes = [[], [7, 3], [2, 3]];
  const colour = (i) => palette[i % palette.length];
  const dash = (i) => dashes[Math.floor(i / palette.length) % dashes.length];
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const ink = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return +(value / 1e9).toPrecision(3) + 'G';
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + 'M';
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + 'k';
    return String(+value.toPrecision(3));
  };
  const charts = [];
  const hidden = new Set();

  function count(chart, documents) {
    let points = 0;
    chart.data.datasets.forEach((set, i) => {
      if (Boolean(set.ofDocument) !== documents || set.guide) return;
      chart.getDatasetMeta(i).data.forEach((point) => {
        const at = point.getProps(['x', 'y'], true);
        if (!point.skip && Number.isFinite(at.x) && Number.isFinite(at.y)) points += 1;
      });
    });
    return points;
  }

  function axis(title, more) {
    return Object.assign({
      title: { display: true, text: title, color: ink('--soft') },
      grid: { color: ink('--line'), borderColor: ink('--line') },
      ticks: { color: ink('--soft'), maxRotation: 0, autoSkipPadding: 16, callback: short },
    }, more);
  }

  // From a little below the lowest loss: the scale's own start is a power of ten.
  function logarithmic(title, values) {
    const above = values.filter((value) => value > 0);
    const made = axis(title, { type: 'logarithmic' });
    if (above.length > 0) made.min = 0.8 * above.reduce((a, b) => Math.min(a, b));
    made.ticks = Object.assign({}, made.ticks, {
      callback: (value) => (/^[125]/.test(value.toExponential()) ? short(value) : null),
    });
    return made;
  }

  function options(x, y, label) {
    return {
      animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
      interaction: { mode: 'nearest', intersect: false },
      layout: { padding: { top: 4, right: 8 } },
      plugins: {
        legend: { display: false },
        tooltip: { displayColors: false, callbacks: { title: () => '', label: label } },
      },
      scales: { x: x, y: y },
    };
  }

  function figure(id, title, unit, height) {
    const box = document.createElement('figure');
    box.id = id;
    const caption = document.createElement('figcaption');
    caption.textContent = title + ' ';
    const note = document.createElement('span');
    note.textContent = unit;
    caption.appendChild(note);
    const plot = document.createElement('div');
    plot.className = 'plot';
    if (height) plot.style.height = height + 'px';
    const canvas = document.createElement('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', title + ' ' + unit);
    plot.appendChild(canvas);
    box.append(caption, plot);
    return { box, canvas };
  }

  // `make` gives a chart's configuration; called again when the colours change.
  function draw(section, id, title, unit, make, height) {
    const { box, canvas } = figure(id, title, unit, height);
    document.getElementById(section).appendChild(box);
    const entry = { chart: null };
    entry.redraw = () => {
      if (entry.chart) entry.chart.destroy();
      entry.chart = new Chart(canvas, make());
      entry.chart.data.datasets.forEach((set, i) => {
        if (hidden.has(set.run)) entry.chart.setDatasetVisibility(i, false);
      });
      entry.chart.update('none');
      if (hidden.size === 0) {
        box.dataset.points = count(entry.chart, false);
        box.dataset.documentPoints = count(entry.chart, true);
      }
    };
    entry.redraw();
    charts.push(entry);
  }

  const lines = (i, points, radius) => ({
    label: data.runs[i].name, run: i, data: points, parsing: false,
    borderColor: colour(i), backgroundColor: colour(i), borderDash: dash(i),
    borderWidth: radius > 0 ? 2 : 1.4, pointRadius: radius, pointHoverRadius: 4,
    tension: 0, clip: 8,
  });
  const diamonds = (i, points) => ({
    label: data.runs[i].name + ', its document', run: i, ofDocument: true, data: points,
    showLine: false, parsing: false, pointStyle: 'rectRot', pointRadius: 7,
    pointHoverRadius: 8, borderColor: colour(i), backgroundColor: ink('--card'),
    borderWidth: 2, clip: 8,
  });
  const zip = (xs, ys) => xs.map((x, i) => ({ x: x, y: ys[i] === null ? NaN : ys[i] }));

  function curves() {
    const sets = (kind, x, y, radius) => data.runs
      .map((run, i) => lines(i, zip(run[kind][x], run[kind][y]), radius))
      .filter((set) => set.data.length > 0);
    const documents = () => data.runs
      .map((run, i) => diamonds(i, 'seconds' in run.document && 'test_accuracy' in run.document
        ? [{ x: run.document.seconds, y: run.document.test_accuracy }] : []))
      .filter((set) => set.data.length > 0);
    const label = (unit) => (item) =>
      item.dataset.label + ': ' + short(item.parsed.x) + unit + ', ' + +item.parsed.y.toPrecision(4);
    const lowest = data.runs.flatMap((run) => run.test.accuracy)
      .filter((value) => value !== null).reduce((a, b) => Math.min(a, b), 99);
    const linear = (title) => axis(title, { type: 'linear', beginAtZero: true });
    [['samples', 'samples', ' samples'], ['seconds', 'seconds of training', ' s']]
      .forEach(([key, title, unit]) => {
        draw('curves', 'accuracy-' + key, 'Test accuracy', '%, over ' + title, () => ({
          type: 'line',
          data: { datasets: sets('test', key, 'accuracy', 3)
            .concat(key === 'seconds' ? documents() : []) },
          options: options(linear(title), axis('%', { min: 10 * Math.floor(lowest / 10), max: 100 }), label(unit)),
        }));
        draw('curves', 'loss-' + key, 'Training loss', 'over ' + title, () => ({
          type: 'line',
          data: { datasets: sets('train', key, 'loss', 0) },
          options: options(linear(title), logarithmic('loss', data.runs.flatMap((run) => run.train.loss)), label(unit)),
        }));
      });
  }

  // One bar per run, and a diamond where its document has a figure.
  function bars(id, title, unit, value, ofDocument) {
    const runs = data.runs.map((run, i) => ({ run, i }))
      .filter(({ run }) => typeof run.bars[value] === 'number');
    if (runs.length === 0) return;
    draw('bars', id, title, unit, () => {
      const datasets = [{
        label: title, data: runs.map(({ run }) => run.bars[value]), order: 2,
        backgroundColor: runs.map(({ i }) => colour(i)), maxBarThickness: 16,
        borderRadius: 3,
      }];
      if (ofDocument && runs.some(({ run }) => ofDocument in run.document)) {
        datasets.push({
          type: 'line', label: 'document', ofDocument: true, showLine: false, order: 1,
          data: runs.map(({ run }) => run.document[ofDocument] ?? NaN),
          pointStyle: 'rectRot', pointRadius: 7, pointHoverRadius: 8, borderWidth: 2,
          borderColor: ink('--ink'), backgroundColor: ink('--card'),
        });
      }
      const made = options(
        axis('', { beginAtZero: true, title: { display: false } }),
        axis('', {
          type: 'category', title: { display: false }, grid: { display: false },
          ticks: { color: ink('--ink'), autoSkip: false },
        }),
        (item) => (item.dataset.ofDocument ? 'document: ' : '') + item.label + ': ' +
          short(item.parsed.x) + ' ' + unit.split(',')[0]);
      made.indexAxis = 'y';
      made.interaction = { mode: 'nearest', axis: 'y', intersect: false };
      return { type: 'bar', data: { labels: runs.map(({ run }) => run.name), datasets }, options: made };
    }, 56 + 28 * runs.length);
  }

  function legend() {
    const box = document.getElementById('legend');
    data.runs.forEach((run, i) => {
      if (run.train.loss.length + run.test.accuracy.length === 0) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.setAttribute('aria-pressed', 'true');
      const line = document.createElement('i');
      line.style.borderTopColor = colour(i);
      line.style.borderTopStyle = ['solid', 'dashed', 'dotted'][Math.floor(i / palette.length) % 3];
      button.append(line, run.name);
      button.dataset.run = i;
      button.addEventListener('click', () => {
        if (!hidden.delete(i)) hidden.add(i);
        showChosen(box);
      });
      // Only this one; all again when it was the only one.
      button.addEventListener('dblclick', () => {
        const alone = hidden.size === data.runs.length - 1 && !hidden.has(i);
        data.runs.forEach((_, run) => hidden[alone || run === i ? 'delete' : 'add'](run));
        showChosen(box);
      });
      box.appendChild(button);
    });
  }

  function showChosen(box) {
    box.querySelectorAll('button').forEach((button) => button.setAttribute(
      'aria-pressed', String(!hidden.has(Number(button.dataset.run)))));
    charts.forEach(({ chart }) => {
      chart.data.datasets.forEach((set, at) => {
        if (set.run !== undefined) chart.setDatasetVisibility(at, !hidden.has(set.run));
      });
      chart.update('none');
    });
  }

  // Runtime and speed-up against the number of ranks, a line per recipe.
  function scaling() {
    const recipes = [...new Set(data.runs.map((run) => run.recipe))];
    const of = (recipe) => data.runs.filter(
      (run) => run.recipe === recipe && typeof run.bars.seconds === 'number');
    const line = (i, points, more) => Object.assign({
      label: recipes[i], data: points, parsing: false, borderColor: colour(i),
      backgroundColor: colour(i), borderWidth: 2, pointRadius: 4, tension: 0,
    }, more);
    const whole = (title) => axis(title, {
      type: 'linear', ticks: { color: ink('--soft'), stepSize: 1, precision: 0 } });
    const labelled = (made) => {
      made.plugins.legend = { display: true, position: 'bottom', labels: {
        color: ink('--ink'), usePointStyle: true, boxHeight: 7, padding: 14 } };
      return made;
    };
    const label = (item) => item.dataset.label + ': ' + item.parsed.x + ' ranks, ' +
      short(item.parsed.y);
    draw('bars', 'scaling-seconds', 'Runtime', 's, against the number of ranks', () => ({
      type: 'line',
      data: { datasets: recipes.flatMap((recipe, i) => {
        const runs = of(recipe);
        const told = runs.filter((run) => 'seconds' in run.document);
        const sets = [line(i, runs.map((run) => ({ x: run.ranks, y: run.bars.seconds })), {})];
        if (told.length > 0) {
          sets.push(line(i, told.map((run) => ({ x: run.ranks, y: run.document.seconds })), {
            label: recipe + ', document', ofDocument: true, borderDash: [6, 4],
            pointStyle: 'rectRot', pointRadius: 6, backgroundColor: ink('--card') }));
        }
        return sets;
      }) },
      options: labelled(options(whole('ranks'), axis('seconds', { beginAtZero: true }), label)),
    }), 380);
    draw('bars', 'scaling-speed-up', 'Speed-up', 'against the fewest ranks', () => ({
      type: 'line',
      data: { datasets: recipes.map((recipe, i) => {
        const runs = of(recipe);
        return line(i, runs.map(
          (run) => ({ x: run.ranks, y: runs[0].bars.seconds / run.bars.seconds })), {});
      }).concat(data.runs.length === 0 ? [] : [{
        label: 'ideal', guide: true, parsing: false, pointRadius: 0, borderWidth: 1,
        borderColor: ink('--soft'), borderDash: [3, 4], pointStyle: 'line',
        data: data.runs.map((run) => run.ranks)
          .sort((a, b) => a - b).map((n, _, all) => ({ x: n, y: n / all[0] })),
      }]) },
      options: labelled(options(whole('ranks'), axis('times as fast', { beginAtZero: true }), label)),
    }), 380);
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  if (data.kind === 'scaling') {
    scaling();
  } else {
    legend();
    curves();
    bars('seconds', 'Runtime', 's, whole program; ◇ the document', 'seconds', 'seconds');
    bars('rate', 'Throughput', 'samples/s, training only', 'samples_per_second');
    bars('bytes', 'Sent', 'MB per rank', 'megabytes');
    bars('exposed', 'Exposed communication', 'ms per step', 'exposed');
    bars('memory', 'Peak memory', 'MiB, PSS of all processes', 'memory');
  }
  dark.addEventListener('change', () => charts.forEach((entry) => entry.redraw()));
  document.body.dataset.drawn = charts.length;
}());
