// Draws each chart of the page's data as stacked bars, one bar for each window.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("charts-data").textContent);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
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
    const options = {
      width: place.clientWidth,
      height: 220,
      scales: { x: { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] }, y: { range: (_, __, max) => [0, max || 1] } },
      axes: [
        { ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100], space: 130,
          values: (_, at) => at.map((each) => (Number.isInteger(each) ? time(each).slice(5, 16) : "")) },
        { ...axis, size: 70, values: (_, at) => at.map((each) => each.toLocaleString("en") + (chart.unit === "s" ? " s" : "")) },
      ],
      series: [
        { label: "Window of (UTC)", value: (_, __, ___, index) => (index == null ? "-" : time(index)) },
        ...order.map((index) => ({
          label: chart.series[index].name, fill: color(chart.series[index].color), stroke: color(chart.series[index].color),
          width: 0, paths: bars, points: { show: false },
          value: (_, __, ___, at) => (at == null ? "-" : (chart.series[index].values[at] ?? "-").toLocaleString("en")),
        })),
      ],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
    };
    const plot = new uPlot(options, [positions, ...order.map((index) => sums[index])], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  };
  data.forEach((chart, index) => draw(chart, document.getElementById(`chart-${index}`)));
})();
