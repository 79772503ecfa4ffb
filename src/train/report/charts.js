// Draws the charts from the JSON of the page, in the colours of the style sheet, and draws them anew
// when the colour scheme changes.
(() => {
  "use strict";
  const run = JSON.parse(document.getElementById("run").textContent);
  const figures = document.getElementById("figures");
  if (figures) figures.open = false;

  const number = (digits) => (v) => (v == null ? "–" : Number(v.toPrecision(digits)).toString());
  const grouped = (v) => (v == null ? "–" : v.toLocaleString("en", {maximumFractionDigits: 0}));
  const short = (v) => {
    if (v == null) return "–";
    const size = Math.abs(v);
    const [by, unit] = size >= 1e9 ? [1e9, "B"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"]
                                                                                        : [1, ""];
    return Number((v / by).toPrecision(4)) + unit;
  };
  const small = (v) => {
    if (v == null) return "–";
    return v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2).replace(/\.?0+e/, "e") : number(4)(v);
  };

  // The mean of the values so far, each weighing `weight` times as much as the one after it.
  const smooth = (values, weight) => {
    let sum = 0, mass = 0;
    return values.map((v) => {
      if (v == null) return null;
      sum = sum * weight + v * (1 - weight);
      mass = mass * weight + (1 - weight);
      return sum / mass;
    });
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const cursors = uPlot.sync("steps");
  let charts = [];

  const axes = (x, y, format) => {
    const common = {
      stroke: colour("--soft"), grid: {stroke: colour("--grid"), width: 1},
      ticks: {stroke: colour("--line"), width: 1, size: 4}, font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
    };
    const width = (u, labels) => {
      u.ctx.save();
      u.ctx.font = common.font;
      const widest = Math.max(0, ...(labels || []).map((text) => u.ctx.measureText(text).width));
      u.ctx.restore();
      return Math.ceil(widest) + 14;
    };
    return [
      {...common, label: x, labelSize: 20, size: 30, space: 60,
       values: (u, at) => at.map((v) => (Number.isInteger(v) ? short(v) : ""))},
      {...common, label: y, labelSize: 20, size: width, space: 34,
       values: (u, at) => at.map(format)},
    ];
  };

  // While the cursor is elsewhere the legend shows the last value of each series.
  const rest = (u) => {
    if (u.cursor.left >= 0) return;
    u.data.forEach((values, i) => {
      let last = values.length - 1;
      while (last > 0 && values[last] == null) --last;
      u.legend.idxs[i] = last;
    });
    u.setLegend({idxs: u.legend.idxs}, false);
  };

  function draw(id, {x, y, format, data, series, height, sync, log, range}) {
    const figure = document.getElementById(id);
    if (!figure) return;
    const place = figure.querySelector(".plot");
    const options = {
      width: Math.max(200, place.parentElement.clientWidth - 36), height,
      scales: {x: range ? {time: false, range} : {time: false}, y: log ? {distr: 3} : {}},
      axes: axes(x, y, format),
      series: [{label: x, value: (u, v) => grouped(v)}].concat(
          series.map((s) => ({value: (u, v) => format(v), points: {size: 4, fill: s.stroke}, ...s}))),
      cursor: {drag: {x: true, y: false}, points: {size: 7}},
      hooks: {ready: [rest], setCursor: [rest],
              draw: [() => { figure.dataset.drawn = "yes"; }]},
    };
    if (sync) options.cursor.sync = {key: cursors.key, setSeries: false};
    charts.push({chart: new uPlot(options, data, place), place, height});
  }

  const settings = {weight: run.steps.length > 20 ? 0.8 : 0, log: false};

  function draw_loss() {
    const weight = settings.weight;
    // A logarithm has no place for 0.
    const shown = (values) => settings.log ? values.map((v) => (v > 0 ? v : null)) : values;
    const curves = [[run.steps, shown(run.loss)]];
    const series = [{label: "training", stroke: colour("--a") + (weight > 0 ? "55" : ""), width: 1.5}];
    if (weight > 0) {
      curves[0].push(shown(smooth(run.loss, weight)));
      series.push({label: "smoothed", stroke: colour("--a"), width: 2});
    }
    if (run.eval.steps.length > 0) {
      curves.push([run.eval.steps, shown(run.eval.loss)]);
      series.push({label: "evaluation", stroke: colour("--b"), width: 2, spanGaps: true,
                   points: {show: true, size: 7, fill: colour("--b")}});
    }
    draw("loss", {x: "step", y: "loss (nats a token)", format: number(4), height: 330, sync: true,
                  log: settings.log, series, data: uPlot.join(curves)});
  }

  function draw_all() {
    charts.forEach(({chart}) => chart.destroy());
    charts = [];
    draw_loss();
    const line = (id, label, y, name, format, values) =>
        draw(id, {x: "step", y, format, height: 220, sync: true, data: [run.steps, values],
                  series: [{label, stroke: colour(name), width: 1.5}]});
    line("lr", "learning rate", "learning rate", "--c", small, run.lr);
    line("grad_norm", "norm", "gradient norm", "--d", small, run.grad_norm);
    line("speed", "speed", "tokens a second", "--e", short, run.tokens_per_second);
    line("memory", "peak", "peak memory (GB)", "--b", number(4), run.memory);
    if (run.lengths) {
      const {width, rows} = run.lengths;
      draw("lengths", {
        x: "tokens a row", y: "rows", format: short, height: 220, range: [0, rows.length * width],
        data: [rows.map((_, i) => (i + 0.5) * width), rows],
        series: [{label: "rows", stroke: colour("--a"), fill: colour("--a") + "66",
                  paths: uPlot.paths.bars({size: [1, Infinity]}), points: {show: false},
                  value: (u, v, s, i) => v == null ? "–" :
                      `${grouped(v)} of ${i * width + 1} to ${(i + 1) * width} tokens`}],
      });
    }
  }

  function add_controls() {
    const figure = document.getElementById("loss");
    if (!figure) return;
    const controls = document.createElement("div");
    controls.className = "controls";
    const add = (text, type, change) => {
      const label = document.createElement("label"), input = document.createElement("input");
      input.type = type;
      label.append(text, input);
      input.addEventListener("input", () => { change(input); draw_all(); });
      controls.append(label);
      return input;
    };
    const output = document.createElement("output");
    const range = add("smoothing", "range", (input) => {
      settings.weight = Number(input.value);
      output.value = input.value;
    });
    [range.min, range.max, range.step, range.value] = ["0", "0.98", "0.02", `${settings.weight}`];
    output.value = range.value;
    range.after(output);
    add("log scale", "checkbox", (input) => { settings.log = input.checked; });
    figure.prepend(controls);
  }

  add_controls();
  draw_all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_all);
  addEventListener("resize", () => charts.forEach(({chart, place, height}) => {
    chart.setSize({width: Math.max(200, place.parentElement.clientWidth - 36), height});
  }));
})();
