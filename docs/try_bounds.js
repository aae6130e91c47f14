"use strict";
// Upper bounds from the stored numbers of try_grid.js, and typed numbers.

const PLACE = {};
[...GRID.digits].forEach((digit, k) => { PLACE[digit] = k; });
const BASE = GRID.digits.length;
// Relative error of a stored number: rounding up, and the share of delta that is spared.
const ROUNDING = GRID.ratio - 1 + 1e-4;

const pair = (text, at) => BASE * PLACE[text[at]] + PLACE[text[at + 1]];
const stored = (code) => GRID.least * Math.pow(GRID.ratio, code);

// Rows of the points between: two numbers, then differences from the line through the last two.
function decoded(text, every) {
  const { noises, rates, epochs, strides } = GRID.finer;
  const table = [];
  let at = 0;
  for (let i = 0; i < noises.length; i += every) {
    for (let j = 0; j < rates.length; j += every) {
      const first = Math.floor(((8 * i + 3 * j) % 12) * strides[i] / 12);
      const row = [], steps = [];
      for (let m = first; m < epochs.length; m += strides[i]) {
        const k = row.length;
        steps.push(Math.ceil(epochs[m] / rates[j]));
        if (k < 2) {
          row.push(pair(text, at));
          at += 2;
        } else if (text[at] === "~") {
          row.push(pair(text, at + 1));
          at += 3;
        } else {
          row.push(PLACE[text[at]] - Math.floor(BASE / 2) + 2 * row[k - 1] - row[k - 2]);
          at += 1;
        }
      }
      table.push({ noise: noises[i], rate: rates[j], steps, codes: row, excess: ROUNDING });
    }
  }
  return table;
}

// The rows at a delta of which no points between are stored: of each point, a number on the line
// through the stored ones at two deltas, by a slope that is large enough for its part of the row.
function beyond(delta) {
  const known = GRID.finer.beyond.find((one) => one.delta === delta);
  if (!known) return [];
  const { parts } = GRID.finer;
  const [near, far] = [0, 1].map((k) => decoded(GRID.finer.codes[k], 1));
  return near.map((row, at) => {
    const codes = row.codes.map((code, k) => {
      const part = parts * at + Math.floor(parts * k / row.codes.length);
      const slope = known.lowest + known.step * PLACE[known.slopes[part]];
      const low = stored(code), bound = low + slope * (stored(far[at].codes[k]) - low);
      return Math.log(Math.max(bound, GRID.least) / GRID.least) / Math.log(GRID.ratio);
    });
    return { ...row, codes, excess: known.excess };
  });
}

// All stored trainings at a delta: lists of {noise, rate, steps: [...], codes: [...]}, and of how
// much a number is at most too large.
const LISTS = new Map();
function listAt(delta) {
  if (LISTS.has(delta)) return LISTS.get(delta);
  const column = delta === 0 ? 0 : 1 + GRID.deltas.indexOf(delta);
  const rows = [];
  GRID.noises.forEach((noise, i) => GRID.rates.forEach((rate, j) => {
    const codes = GRID.epochs.map((_, k) => positionCode(i, j, k, column));
    const steps = GRID.epochs.map((e) => stepsAt(e, rate));
    rows.push({ noise, rate, steps, codes, excess: ROUNDING });
  }));
  const at = GRID.finer.deltas.indexOf(delta);
  if (at >= 0) rows.push(...decoded(GRID.finer.codes[at], GRID.finer.every[at]));
  rows.push(...beyond(delta));
  LISTS.set(delta, rows);
  return rows;
}

function positionCode(i, j, k, column) {
  const width = GRID.deltas.length + 1;
  const place = ((i * GRID.rates.length + j) * GRID.epochs.length + k) * width + column;
  return pair(GRID.training, 2 * place);
}

// Rates of positions are powers of two over 1000, or 1: whole sizes have these steps.
function stepsAt(epochs, rate) {
  if (rate === 1) return Math.ceil(epochs);
  return Math.ceil(epochs * 1000 / Number((1000 * rate).toPrecision(12)));
}

// A step at a rate is a step at a higher one that is left out with probability 1 - share. Delta is
// convex in the rate of each step, so that delta of T steps is at most the mean of delta over the
// binomial number of steps that are not left out. This number exceeds the result with probability
// at most e^-nats (Chernoff).
function stepsAtHigherRate(steps, share, nats) {
  if (share >= 1) return steps;
  const exponent = (x) => steps * (x * Math.log(x / share)
    + (x < 1 ? (1 - x) * Math.log((1 - x) / (1 - share)) : 0));
  let low = share, high = 1;
  if (exponent(1) < nats) return steps;
  for (let k = 0; k < 40; k++) {
    const middle = (low + high) / 2;
    if (exponent(middle) >= nats * (1 + 1e-6)) high = middle; else low = middle;
  }
  return Math.min(steps, Math.ceil(steps * high));
}

// The least stored number of a training that is no more private; null beyond the stored range.
function upper(training, delta) {
  const { noise, rate, steps } = training;
  // Nothing is spared of an advantage: it is added.
  const spared = delta === 0 ? 1e-4 : GRID.spare * delta;
  const needed = new Map();
  let best = null;
  for (const row of listAt(delta)) {
    if (row.noise > noise || row.rate < rate) continue;
    if (!needed.has(row.rate)) {
      needed.set(row.rate, stepsAtHigherRate(steps, rate / row.rate, Math.log(1 / spared)));
    }
    const k = row.steps.findIndex((count) => count >= needed.get(row.rate));
    if (k >= 0 && (best === null || row.codes[k] < best.code)) {
      best = { code: row.codes[k], noise: row.noise, rate: row.rate, steps: row.steps[k] };
    }
  }
  return best && { ...best, value: stored(best.code) + (delta === 0 ? spared : 0) };
}

// At every stored delta: a bound at a smaller delta is one too.
function uppers(training) {
  const found = GRID.deltas.map((delta) => upper(training, delta));
  for (let k = found.length - 2; k >= 0; k--) {
    const next = found[k + 1];
    if (next !== null && (found[k] === null || next.code < found[k].code)) found[k] = next;
  }
  return found;
}

// The largest stored number of a training that is no less private, less its excess; 0 below .01,
// where the share of delta that is spared may count more.
function lower(training, delta) {
  let least = 0;
  for (const row of listAt(delta)) {
    if (row.noise < training.noise || row.rate > training.rate) continue;
    const k = row.steps.findLastIndex((count) => count <= training.steps);
    const known = k < 0 ? 0 : stored(row.codes[k]);
    if (known >= 0.01) least = Math.max(least, known / (1 + row.excess));
  }
  return least;
}

// The position that a training stands on, as codes at delta 0 and at every stored delta; or null.
function positionOf({ noise, rate, epochs }) {
  const i = GRID.noises.indexOf(noise), j = GRID.rates.indexOf(rate);
  const k = GRID.epochs.indexOf(epochs);
  if (Math.min(i, j, k) < 0) return null;
  return [0, ...GRID.deltas].map((_, column) => stored(positionCode(i, j, k, column)));
}

// Of one answer, at the next lower ratio of scale and sensitivity; null below all of them.
function answer(kind, ratio) {
  const at = GRID.ratios.findLastIndex((known) => known <= ratio);
  if (at < 0) return null;
  const width = GRID.deltas.length + 1;
  const values = [0, ...GRID.deltas].map((_, column) =>
    stored(pair(GRID.answers[kind], 2 * (at * width + column))));
  return { values, ratio: GRID.ratios[at], next: GRID.ratios[at + 1] };
}

// Points (epsilon, delta) of a profile, epsilon rising. Delta is convex in e^epsilon, so that it lies
// below every chord: points above a chord are left out.
function profileOf(advantage, epsilons) {
  const points = [{ epsilon: 0, delta: Math.min(advantage, 1) }];
  GRID.deltas.forEach((delta, k) => {
    const epsilon = epsilons[k];
    if (epsilon === null || delta >= points[0].delta) return;
    while (points.length > 1 && !isBelowChord(points.at(-1), points.at(-2), { epsilon, delta })) {
      points.pop();
    }
    points.push({ epsilon, delta });
  });
  return points;
}

// Delta on the chord of two points, in e^epsilon: an upper bound between them.
function chord(before, after, epsilon) {
  const whole = Math.expm1(before.epsilon - after.epsilon);
  const share = whole === 0 ? 1
    : Math.exp(epsilon - after.epsilon) * Math.expm1(before.epsilon - epsilon) / whole;
  return before.delta + share * (after.delta - before.delta);
}
const isBelowChord = (point, before, after) => point.delta < chord(before, after, point.epsilon);

// Largest true-positive rate at a false-positive rate: every point of a profile is a bound.
function mostFound(points, rate) {
  return Math.min(1, ...points.map(({ epsilon, delta }) =>
    Math.min(delta + Math.exp(epsilon) * rate, 1 - Math.exp(-epsilon) * (1 - delta - rate))));
}

// Vertices of the line through the points: a bound at an epsilon is one at every larger epsilon.
const stepped = (points) => points.flatMap((point, k) => (k === 0 ? [point]
  : [{ epsilon: point.epsilon, delta: points[k - 1].delta }, point]));

// The number above 0 that is typed; null if it is none, or could be another one. Only whole numbers
// have marks of thousands; in all others a comma is a decimal mark.
function parsed(text, field) {
  const bare = text.trim(), form = field.whole
    ? /^[1-9]\d*([.]\d+)?e[+]?\d+$|^[1-9]\d*$|^[1-9]\d{0,2}([,\s_])\d{3}(\2\d{3})*$/i
    : /^(0|[1-9]\d*)?([.,]\d*)?(e[+-]?\d+)?$/i;
  if (!form.test(bare)) return null;
  const number = parseFloat(field.whole ? bare.replace(/[,\s_]/g, "") : bare.replace(",", "."));
  if (!Number.isFinite(number) || number <= 0) return null;
  return field.whole && !Number.isInteger(number) ? null : number;
}
