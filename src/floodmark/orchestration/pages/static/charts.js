// Draws each chart of the page's data as stacked bars, one bar for each window. A window without a value leaves a gap.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("charts-data").textContent);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  // Of each unit: its larger units, each with the value from which it is used, and the steps of a grid's lines.
  const units = {
    s: {
      larger: [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"], [-Infinity, 1, "s"]],
      steps: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200,
        86400, 172800, 432000, 864000, 2592000, 8640000, 31536000],
    },
    B: {
      larger: [4, 3, 2, 1].map((power) => [1024 ** power, 1024 ** power, " KMGT"[power] + "iB"]).concat([[-Infinity, 1, "B"]]),
      steps: Array.from({ length: 50 }, (_, power) => 2 ** power),
    },
    rows: { larger: [[-Infinity, 1, ""]], steps: Array.from({ length: 48 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3)) },
  };
  const text = (value, unit) => {
    const [, size, name] = units[unit].larger.find(([from]) => value >= from);
    return `${(value / size).toLocaleString("en", { maximumFractionDigits: size === 1 ? 3 : 1 })} ${name}`.trim();
  };
  const draw = (chart, place) => {
    const positions = chart.times.map((_, index) => index);
    // A series is drawn as the sum of itself and those before it, the highest first: so the bars are stacked.
    const sums = [];
    chart.series.forEach((each, index) => {
      sums.push(each.values.map((value, at) => (value ?? 0) + (index ? sums[index - 1][at] : 0)));
    });
    const order = chart.series.map((_, index) => index).reverse();
    const time = (index) => chart.times[index]?.slice(0, 19).replace("T", " ") ?? "";
    const bars = uPlot.paths.bars({ size: [0.7, 60] });
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    // Without a pointer on the chart, its legend has the values of the newest window.
    const showLast = (plot) => plot.setLegend({ idx: positions.length - 1 }, false);
    const options = {
      width: place.clientWidth,
      height: 220,
      scales: { x: { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] }, y: { range: (_, __, max) => [0, max || 1] } },
      axes: [
        { ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100], space: 130,
          values: (_, at) => at.map((each) => (Number.isInteger(each) ? time(each).slice(5, 16) : "")) },
        { ...axis, size: 70, incrs: units[chart.unit].steps, values: (_, at) => at.map((each) => text(each, chart.unit)) },
      ],
      series: [
        { label: "Window of (UTC)", value: (_, __, ___, index) => (index == null ? "-" : time(index)) },
        ...order.map((index) => ({
          label: chart.series[index].name, fill: color(chart.series[index].color), stroke: color(chart.series[index].color),
          width: 0, paths: bars, points: { show: false },
          value: (_, __, ___, at) => (at == null || chart.series[index].values[at] == null ? "-" : text(chart.series[index].values[at], chart.unit)),
        })),
      ],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      hooks: { ready: [showLast], setCursor: [(plot) => { if (plot.cursor.idx == null) showLast(plot); }] },
    };
    const plot = new uPlot(options, [positions, ...order.map((index) => sums[index])], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  };
  data.forEach((chart, index) => draw(chart, document.getElementById(`chart-${index}`)));
})();
