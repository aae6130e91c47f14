"use strict";
// The two pictures of try.html.

const element = (id) => document.getElementById(id);

// A picture with axes: x and y map numbers to places, ticks are [number, text].
function picture(id, axes, shapes) {
  const { x, y, xTicks, yTicks, xLabel, yLabel } = axes;
  const vertical = xTicks.map(([v, text]) => `<line class="grid" x1="${x(v)}" x2="${x(v)}" y1="12"
    y2="240"/><text x="${x(v)}" y="257" text-anchor="middle">${text}</text>`);
  const horizontal = yTicks.map(([v, text]) => `<line class="grid" x1="58" x2="428" y1="${y(v)}"
    y2="${y(v)}"/><text x="52" y="${y(v) + 4}" text-anchor="end">${text}</text>`);
  element(id).innerHTML = `${vertical.join("")}${horizontal.join("")}
    <text x="243" y="282" text-anchor="middle">${xLabel}</text>
    <text x="14" y="126" text-anchor="middle" transform="rotate(-90 14 126)">${yLabel}</text>${shapes}`;
}
const line = (points, kind) =>
  `<polyline class="${kind}" points="${points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ")}"/>`;
const power = (k) => (k === 0 ? "1" : `10<tspan dy="-5" font-size="9">${String(k).replace("-", "−")}</tspan>`);
const dot = (cx, cy, kind) => `<circle class="${kind}" cx="${cx.toFixed(1)}" cy="${cy.toFixed(1)}" r="4.5"/>`;

function profilePicture(points, chosen) {
  const last = points.length ? points[points.length - 1].epsilon : 1;
  const unit = 10 ** Math.floor(Math.log10(Math.max(last, 1e-3)));
  const step = [0.2, 0.5, 1, 2].map((m) => m * unit).find((s) => last / s <= 6) ?? 2 * unit;
  const end = Math.max(step, Math.ceil(last / step - 1e-9) * step);
  const x = (epsilon) => 58 + 370 * epsilon / end;
  const y = (delta) => 12 + 228 * -Math.log10(Math.max(delta, 1e-8)) / 8;
  const xTicks = [...Array(Math.round(end / step) + 1).keys()]
    .map((k) => [k * step, String(Number((k * step).toPrecision(3)))]);
  const yTicks = [0, -2, -4, -6, -8].map((k) => [10 ** k, power(k)]);
  const curve = stepped(points).map((p) => [x(p.epsilon), y(p.delta)]);
  picture("profile", { x, y, xTicks, yTicks, xLabel: "ε", yLabel: "δ" },
    line(curve, "curve") + points.map((p) => dot(x(p.epsilon), y(p.delta), "point")).join("")
    + (chosen === null ? "" : dot(x(chosen.epsilon), y(chosen.delta), "chosen")));
}

function tradeoffPicture(points, found) {
  const x = (rate) => 58 + 370 * (4 + Math.log10(rate)) / 4;
  const y = (rate) => 240 - 228 * (4 + Math.log10(Math.max(rate, 1e-4))) / 4;
  const ticks = [-4, -3, -2, -1, 0].map((k) => [10 ** k, power(k)]);
  const rates = [...Array(121).keys()].map((k) => 10 ** (-4 + k / 30));
  const curve = points.length ? rates.map((rate) => [x(rate), y(mostFound(points, rate))]) : [];
  const axes = { x, y, xTicks: ticks, yTicks: ticks, xLabel: "share accused wrongly",
    yLabel: "share found, at most" };
  picture("tradeoff", axes, line(rates.map((rate) => [x(rate), y(rate)]), "guess")
    + line(curve, "curve") + (points.length ? dot(x(1e-3), y(found), "dot") : ""));
}
