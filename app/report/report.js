// Draws the charts of the page with Chart.js 3.9. report_charts.h describes their data.
(() => {
  'use strict';
  const specs = JSON.parse(document.getElementById('charts').textContent);
  // At first, only as many lines are visible as there are colors. Clicks in the legend show the
  // others.
  const COLORS = 8;
  const MARKERS = ['circle', 'rect', 'triangle', 'crossRot', 'cross'];
  const DASHES = [[], [8, 4], [2, 3]];
  const hidden = new Set(specs.flatMap((spec) => spec.lines ?? [])
    .filter((line) => line.style >= COLORS).map((line) => line.run));
  let charts = [];

  const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const color = (style) => css(`--color-${style % COLORS}`);
  const short = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);
  const number = (value) => Number(value.toPrecision(4)).toLocaleString('en');

  function value_axis({ title, scale }, from_zero) {
    const log = scale === 'log';
    return {
      type: log ? 'logarithmic' : 'linear',
      beginAtZero: from_zero && !log,
      title: { display: true, text: log ? `${title} (log)` : title },
      // Prints 1 and 0.001 on a logarithmic axis, not 1.000 and 0.001.
      ticks: { format: log ? { minimumFractionDigits: 0 } : {} },
    };
  }

  // Returns a reversed logarithmic axis of errors whose labels are accuracies. The error of an
  // accuracy of 100 % has no logarithm, so it is drawn at the end of the axis.
  function error_axis(title, errors) {
    const least = Math.min(...errors.filter((error) => error > 0));
    const perfect = errors.includes(0);
    const end = least * (perfect ? 0.5 : 0.8);
    return {
      type: 'logarithmic',
      reverse: true,
      min: end,
      title: { display: true, text: `${title} (log of the error)` },
      ticks: {
        callback(error, index, ticks) {
          if (perfect && error === end) return '100';
          const text = Chart.Ticks.formatters.logarithmic.call(this, error, index, ticks);
          return text === '' ? '' : String(Number((100 - error).toPrecision(6)));
        },
      },
    };
  }

  function line_chart(spec) {
    const all = spec.lines.flatMap((line) => [...line.points ?? [], ...line.tutorial ?? []]);
    // Math.min(...) would fail, because a call has at most about 100,000 arguments.
    const ends = all.reduce(
      ([least, most], [x]) => [Math.min(least, x), Math.max(most, x)], [Infinity, -Infinity]);
    const errors = all.map(([, y]) => 100 - y);
    const y_axis = spec.y.scale === 'error' ? error_axis(spec.y.title, errors)
      : value_axis(spec.y, false);
    const x_axis = value_axis(spec.x, true);
    if (spec.x.title === 'ranks') {
      x_axis.ticks.precision = 0;
    }
    const height = (y) => (spec.y.scale === 'error' ? Math.max(100 - y, y_axis.min) : y);
    // A logarithmic axis cannot show zero.
    const shown = ([x, y]) => (spec.x.scale !== 'log' || x > 0) && (spec.y.scale !== 'log' || y > 0);
    const data = (points) => points.filter(shown).map(([x, y]) => ({ x, y: height(y), value: y }));
    const look = (style) => ({ borderColor: color(style), backgroundColor: color(style) });
    const datasets = [];
    spec.lines.forEach((line) => {
      const { run, label, style, wins } = line;
      const points = data(line.points ?? []);
      datasets.push({
        run, label, data: points, ...look(style),
        order: wins ? 1 : 2,
        borderWidth: wins ? 3.5 : 2,
        borderDash: DASHES[Math.floor(style / COLORS) % DASHES.length],
        pointStyle: MARKERS[style % MARKERS.length],
        pointRadius: points.length > 20 ? 0 : 4,
      });
      if (line.tutorial) {
        datasets.push({
          run, label: `tutorial of ${run}`, data: data(line.tutorial), ...look(style),
          backgroundColor: css('--card'), legend: 'the tutorial’s result',
          showLine: false, pointStyle: 'rectRot', pointRadius: 6, borderWidth: 2,
        });
      }
      (line.ranges ?? []).forEach(([x, least, most]) => datasets.push({
        run, label: `${run}, least and most`, data: data([[x, least], [x, most]]),
        borderColor: `${color(style)}66`, borderWidth: 5, pointRadius: 0, legend: '',
      }));
    });
    const heights = all.map(([, y]) => y).filter((y) => spec.y.scale !== 'log' || y > 0)
      .reduce(([least, most], y) => [Math.min(least, y), Math.max(most, y)],
        [Infinity, -Infinity]);
    const line = ({ x, y }) => (
      x === undefined ? ends.map((end) => [end, y]) : heights.map((end) => [x, end]));
    spec.marks.forEach(({ kind, label, run, points, ...place }) => datasets.push(
      kind === 'winner'
        ? { run, label: `★ ${label}`, data: data(points), borderColor: css('--ink'),
            backgroundColor: 'transparent', pointStyle: 'circle', pointRadius: 9,
            borderWidth: 2, showLine: false, order: 0 }
        : { run, label, data: data(points ?? line(place)), borderColor: css('--soft'),
            borderDash: [3, 4], borderWidth: 1.5, pointRadius: 0, pointStyle: 'line',
            order: 3, legend: kind === 'resume' ? 'resumed' : label }));
    return {
      type: 'line',
      data: { datasets },
      options: {
        scales: { x: x_axis, y: y_axis },
        interaction: { mode: 'nearest', intersect: false, axis: 'xy' },
        plugins: {
          // Many names leave no room in a small chart, so only the first chart has a long legend.
          legend: { display: spec === specs[0] || spec.lines.length <= 4,
            position: 'bottom', onClick: toggle, labels: { usePointStyle: true, boxHeight: 7,
            filter: in_legend, generateLabels: legend_labels } },
          tooltip: { callbacks: {
            title: ([item]) => item.dataset.label,
            label: ({ raw }) => `${spec.y.title}: ${number(raw.value)}`,
            afterLabel: ({ raw }) => `${spec.x.title}: ${number(raw.x)}`,
          } },
        },
      },
    };
  }

  function legend_labels(chart) {
    return Chart.defaults.plugins.legend.labels.generateLabels(chart).map((item) => {
      const set = chart.data.datasets[item.datasetIndex];
      return { ...item, text: set.legend ?? item.text };
    });
  }

  // Keeps one legend entry for all tutorials, and none for the ranges of repeated runs.
  function in_legend({ text, datasetIndex }, { datasets }) {
    return text !== '' &&
      datasets.findIndex((set) => (set.legend ?? set.label) === text) === datasetIndex;
  }

  // Shows or hides a run in every chart.
  function toggle(event, { datasetIndex }, { chart }) {
    const { run } = chart.data.datasets[datasetIndex];
    if (run === undefined) return;
    if (!hidden.delete(run)) hidden.add(run);
    charts.forEach(show_runs);
  }

  function show_runs(chart) {
    chart.data.datasets.forEach(
      ({ run }, index) => chart.setDatasetVisibility(index, !hidden.has(run)));
    chart.update();
  }

  function cost_chart({ bars, scale, unit }) {
    const log = scale === 'log';
    const colors = bars.map(({ style }) => color(style));
    const datasets = [{
      // A logarithmic axis does not begin at zero, so a bar would have no length. Points are drawn
      // instead.
      type: log ? 'line' : 'bar', label: unit, data: bars.map((bar) => bar.value),
      backgroundColor: colors, borderColor: colors, showLine: false, pointRadius: 5,
      barThickness: 12, order: 1,
    }];
    if (bars.some((bar) => 'least' in bar)) {
      datasets.push({
        label: 'least and most', data: bars.map(({ least, most }) => [least, most]),
        backgroundColor: css('--soft'), barThickness: 4, grouped: false, order: 0,
      });
    }
    if (bars.some((bar) => 'tutorial' in bar)) {
      datasets.push({
        type: 'line', label: 'the tutorial’s result', showLine: false, order: 0,
        data: bars.map((bar) => bar.tutorial ?? null), borderColor: css('--ink'),
        backgroundColor: css('--card'), pointStyle: 'rectRot', pointRadius: 6, borderWidth: 2,
      });
    }
    return {
      type: 'bar',
      data: { labels: bars.map((bar) => short(bar.run)), datasets },
      options: {
        indexAxis: 'y',
        scales: { x: value_axis({ title: unit, scale }, true), y: { offset: true } },
        plugins: { legend: { display: datasets.length > 1, position: 'bottom',
          labels: { usePointStyle: true, boxHeight: 7 } } },
      },
    };
  }

  // Adds a <figure> element for each chart.
  specs.forEach((spec) => {
    const figure = document.createElement('figure');
    figure.id = spec.id;
    const caption = document.createElement('figcaption');
    caption.textContent = spec.title;
    const plot = document.createElement('div');
    const canvas = document.createElement('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', spec.title);
    if (spec.bars) plot.style.height = `${5.5 + 1.6 * spec.bars.length}rem`;
    // Number of legend entries, from which report.css computes the height.
    plot.style.setProperty('--rows', spec.lines ? spec.lines.length + spec.marks.length + 1 : 0);
    plot.append(canvas);
    figure.append(caption, plot);
    const section = document.getElementById(spec.group);
    section.hidden = false;
    section.append(figure);
  });

  // Draws all charts. Called again when the color scheme changes, because canvases do not follow
  // style sheets.
  function draw() {
    charts.forEach((chart) => chart.destroy());
    Object.assign(Chart.defaults, {
      animation: false, maintainAspectRatio: false, locale: 'en',
      color: css('--ink'), borderColor: css('--line') });
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    charts = specs.map((spec) => new Chart(
      document.querySelector(`#${spec.id} canvas`),
      spec.bars ? cost_chart(spec) : line_chart(spec)));
    charts.forEach(show_runs);
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
})();
