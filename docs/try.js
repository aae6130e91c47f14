"use strict";
// The controls of try.html and its text.

const FIELDS = {
  training: [
    { id: "noise", label: "Noise multiplier", points: GRID.noises, start: 1.1,
      note: "Standard deviation of the noise, divided by the clipping norm." },
    { id: "batch", label: "Batch", points: GRID.batches, start: 256, whole: true,
      note: "Expected number of records in a step." },
    { id: "records", label: "Records", points: GRID.records, start: 64000, whole: true,
      note: "Number of records in the data set." },
    { id: "epochs", label: "Epochs", points: GRID.epochs, start: 15,
      note: "Expected number of times that a record is used." },
  ],
  answer: [
    { id: "scale", label: "Scale of the noise", points: GRID.scales, start: 4,
      note: "Gaussian: standard deviation. Laplace: mean absolute value." },
    { id: "sensitivity", label: "Sensitivity", points: GRID.sensitivities, start: 1,
      note: "Largest change of the answer from one record." },
  ],
};
const KINDS = { gaussian: "Gaussian", laplace: "Laplace" };
const SHOWN_DELTAS = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8];
// Of 100 random inputs, 95 are at most so much too large, in percent: tests/unit/test_try_page.py.
const MEASURED = 12;
const state = { mode: "training", kind: "gaussian", delta: 1e-5 };
for (const field of [...FIELDS.training, ...FIELDS.answer]) state[field.id] = field.start;

const short = (delta) => delta.toExponential();
const grouped = (x) => (x >= 1e4 && Number.isInteger(x) ? x.toLocaleString("en-US") : String(x));
// As `parsed` reads it.
const written = (x, field) => (field.whole ? grouped(x) : String(x));

// Four digits, rounded up or down.
function digits(x, round) {
  const unit = 10 ** (Math.floor(Math.log10(x)) - 3);
  return String(Number((round(x / unit) * unit).toPrecision(4)));
}
const up = (x) => (x <= GRID.least ? String(GRID.least) : digits(x * (1 - 1e-12), Math.ceil));
const down = (x) => (x <= 0 ? "0" : digits(x, Math.floor));
const percent = (x) => `${(Math.ceil(1000 * x) / 10).toFixed(1)}\u00a0%`;

const nearest = (points, x) => points.reduce((best, point, k) =>
  (Math.abs(Math.log(point / x)) < Math.abs(Math.log(points[best] / x)) ? k : best), 0);

function control(field) {
  const box = document.createElement("div");
  box.className = "control";
  const last = field.points.length - 1;
  const message = field.whole ? "a whole number above 0, as 64,000 or 64000"
    : "a number above 0, as 0.5 or 0,5, without marks of thousands";
  box.innerHTML = `<label for="${field.id}">${field.label}</label>
    <input class="number" id="${field.id}" type="text" inputmode="decimal"
      aria-describedby="${field.id}-note">
    <input id="${field.id}-slider" type="range" min="0" max="${last}" step="1"
      aria-label="${field.label}, slider">
    <p class="note" id="${field.id}-note">${field.note}</p>
    <p class="error" id="${field.id}-error" hidden>Enter ${message}.</p>`;
  const [number, slider] = box.querySelectorAll("input");
  const show = () => {
    slider.value = nearest(field.points, state[field.id]);
    slider.setAttribute("aria-valuetext", written(state[field.id], field));
  };
  number.value = written(state[field.id], field);
  show();
  number.addEventListener("input", () => {
    const value = parsed(number.value, field);
    number.setAttribute("aria-invalid", value === null);
    box.querySelector(".error").hidden = value !== null;
    if (value === null) {
      element("epsilon").textContent = `${field.label}: enter ${message}`;
      element("source").textContent = "What follows is of the last numbers that were complete.";
      return;
    }
    state[field.id] = value;
    show();
    update();
  });
  slider.addEventListener("input", () => {
    state[field.id] = field.points[slider.value];
    number.value = written(state[field.id], field);
    number.setAttribute("aria-invalid", false);
    box.querySelector(".error").hidden = true;
    slider.setAttribute("aria-valuetext", number.value);
    update();
  });
  return box;
}

function chooser(id, label, options, selected, changed) {
  const box = document.createElement("div");
  box.className = "control";
  box.innerHTML = `<label for="${id}">${label}</label><select id="${id}"></select>`;
  fill(box.querySelector("select"), options, selected, changed);
  return box;
}

function fill(select, options, selected, changed) {
  for (const [value, text] of options) select.add(new Option(text, value, false, value === selected));
  select.addEventListener("change", () => { changed(select.value); update(); });
}

function controls() {
  const boxes = FIELDS[state.mode].map(control);
  if (state.mode === "answer") {
    const changed = (kind) => { state.kind = kind; };
    boxes.unshift(chooser("kind", "Noise", Object.entries(KINDS), state.kind, changed));
  }
  element("controls").replaceChildren(...boxes);
}

// What is shown, of a training: epsilon, its source in words, the profile, noise for an epsilon.
function ofTraining(wanted) {
  const { noise, records, epochs, delta } = state;
  const batch = Math.min(state.batch, records);
  const training = { noise, rate: batch / records, steps: Math.ceil(epochs * records / batch), epochs };
  const column = 1 + GRID.deltas.indexOf(delta);
  const known = positionOf(training);
  const notes = batch < state.batch ? ["A batch is at most all records."] : [];
  const command = `--dataset-size ${records} --batch-size ${batch} --epochs ${epochs}`;
  const sizes = `dataset_size=${records}, batch_size=${batch}, epochs=${epochs}`;
  const bound = (multiplier) => upper({ ...training, noise: multiplier }, delta)?.value ?? Infinity;
  const all = known ? [] : uppers(training);
  const found = known ? null : all[column - 1];
  const epsilon = known ? known[column] : found && found.value;
  const values = known
    ?? [upper(training, 0)?.value ?? null, ...all.map((one) => one && one.value)];
  if (known) {
    notes.push("Stored for exactly these numbers: the library's upper bound, rounded up.");
  } else if (found) {
    const least = lower(training, delta);
    const excess = least > 0 ? `, so it is at most ${percent(epsilon / least - 1)} too large` : "";
    notes.push(`Typed numbers: this is the bound of the next stored training on the safe side (noise
      multiplier ${found.noise}, batches of ${Number((100 * found.rate).toPrecision(4))} % of the
      records, ${grouped(found.steps)} steps). The exact ε is at least ${down(least)}${excess}.`);
  } else {
    notes.push("Beyond the stored numbers (noise multiplier from 0.4, up to 300 epochs): use the lines below.");
  }
  const ladder = [...new Set([...GRID.noises, ...GRID.finer.noises])].sort((a, b) => a - b);
  const least = firstThat(ladder, (multiplier) => bound(multiplier) <= wanted);
  return {
    epsilon, notes, values,
    enough: least && `Noise multiplier ${least} is enough. The least one, exactly:`,
    least: `jaxdp calibrate --epsilon ${wanted} --delta ${short(delta)} ${command}`,
    python: `import jaxdp as dp\ndp.dpsgd.epsilon(${noise}, ${short(delta)}, ${sizes})`,
    shell: `jaxdp epsilon --noise-multiplier ${noise} --delta ${short(delta)} ${command}`,
  };
}

function ofAnswer(wanted) {
  const { kind, scale, sensitivity, delta } = state;
  const column = 1 + GRID.deltas.indexOf(delta);
  const found = answer(kind, scale / sensitivity);
  const notes = [];
  const epsilon = found && found.values[column];
  if (!found) {
    notes.push("Beyond the stored numbers (a scale from a tenth of the sensitivity): use the lines below.");
  } else if (found.ratio === scale / sensitivity) {
    notes.push("Stored for exactly these numbers: the library's upper bound, rounded up.");
  } else {
    const least = found.next ? answer(kind, found.next).values[column] / (1 + ROUNDING) : 0;
    const excess = least > 0 ? ` It is at most ${percent(epsilon / least - 1)} too large.` : "";
    notes.push(`Typed numbers: this is the bound of the next smaller stored scale,
      ${Number((found.ratio * sensitivity).toPrecision(5))}.${excess}`);
  }
  const least = firstThat(GRID.ratios, (ratio) => answer(kind, ratio).values[column] <= wanted);
  const name = KINDS[kind];
  const asked = `dp.Mechanism(dp.${name}(${scale}), sensitivity=${sensitivity}).epsilon(${short(delta)})`;
  return {
    epsilon, notes, values: found ? found.values : [],
    enough: least && `Scale ${up(least * sensitivity)} is enough. The least one, exactly:`,
    least: `dp.calibrate(lambda s: dp.Mechanism(dp.${name}(s), ${sensitivity}), dp.Budget(${wanted}, ${short(delta)}))`,
    python: `import jaxdp as dp\n${asked}`,
    shell: `python -c "import jaxdp as dp; print(${asked})"`,
  };
}

// The first of a rising list that passes a test which all later ones pass too; null if none does.
function firstThat(list, passes) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passes(list[middle])) high = middle; else low = middle + 1;
  }
  return list[low] ?? null;
}

// Lines break between words, not at hyphens.
function words(id, text) {
  element(id).replaceChildren(...text.split(/([ \n])/).map((part) => {
    const word = document.createElement("span");
    word.textContent = part;
    return part.trim() === "" ? part : word;
  }));
}

function update() {
  const wanted = parsed(element("wanted").value, {});
  const shown = (state.mode === "training" ? ofTraining : ofAnswer)(wanted ?? 1);
  const { epsilon, values } = shown;
  words("epsilon", epsilon === null
    ? "No stored ε" : `ε ≤ ${up(epsilon)} at δ = ${short(state.delta)}`);
  element("epsilon").dataset.epsilon = epsilon;
  element("source").textContent = shown.notes.join(" ");
  const points = values.length ? profileOf(values[0] ?? 1, values.slice(1)) : [];
  const found = mostFound(points, 1e-3);
  const none = points.length === 0;
  element("advantage").textContent = none ? "" : `Advantage ${up(points[0].delta)}: an attacker who
    starts from even odds, and must say whether one person's record was used, is right in at most
    ${percent((1 + points[0].delta) / 2)} of the cases. Guessing is right in 50\u00a0%.`;
  element("accused").textContent = none ? "" : `An attacker who accuses 1 in 1,000 people wrongly
    finds at most ${up(1000 * found)} in 1,000 of those whose records were used.`;
  profilePicture(points, epsilon === null ? null : { epsilon, delta: state.delta });
  tradeoffPicture(points, found);
  element("enough").textContent = wanted === null ? "Enter a number above 0."
    : shown.enough ?? "No stored noise is enough. The least noise, exactly:";
  words("least", wanted === null ? "" : shown.least);
  words("python", shown.python);
  words("shell", shown.shell);
}

function selected(mode) {
  state.mode = mode;
  for (const name of ["training", "answer"]) {
    const tab = element(`tab-${name}`);
    tab.setAttribute("aria-selected", name === mode);
    tab.tabIndex = name === mode ? 0 : -1;
  }
  element("inputs").setAttribute("aria-labelledby", `tab-${mode}`);
  controls();
  update();
}

for (const [mode, other] of [["training", "answer"], ["answer", "training"]]) {
  element(`tab-${mode}`).addEventListener("click", () => selected(mode));
  element(`tab-${mode}`).addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    selected(other);
    element(`tab-${other}`).focus();
  });
}
element("inputs").addEventListener("submit", (event) => event.preventDefault());
element("wanted").addEventListener("input", update);
fill(element("delta"), SHOWN_DELTAS.map((d) => [short(d), short(d)]), short(state.delta),
  (value) => { state.delta = Number(value); });
element("measured").textContent = MEASURED;
element("site").hidden = location.protocol === "file:";
selected("training");
