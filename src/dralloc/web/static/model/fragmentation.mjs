// Idle and stranded devices over time, as charts draw them: stacked by cause, one row for each driver.

// From the bottom; the words of the metric `dralloc_stranded_devices`, and those for people.
export const CAUSES = [
  ["cpu-starved", "no cpu or memory beside them"],
  ["remainder-too-small", "remainder too small"],
  ["counters", "no counters"],
  ["taint", "tainted"],
];

/** The series of each driver, by name; a driver that a sample lacks had no devices then. */
export function seriesOf(samples) {
  const drivers = [...new Set(samples.flatMap((sample) => Object.keys(sample.drivers)))].sort();
  return drivers.map((driver) => {
    const points = samples.map((sample) => ({ at: Date.parse(sample.time), idle: 0, stranded: {}, ...sample.drivers[driver] }));
    return { driver, points, most: Math.max(...points.map(({ idle }) => idle)) };
  });
}

/** Outlines of the causes that occur, and the line of all idle devices, as points of a chart of this size. */
export function shapesOf({ points, most }, width, height) {
  const [first, last] = [points[0].at, points.at(-1).at];
  // One sample is drawn as if nothing had changed.
  const drawn = last > first ? points : [points[0], points[0]];
  const x = (index) => (last > first ? ((drawn[index].at - first) / (last - first)) * width : index * width);
  const y = (amount) => height - (most ? (amount / most) * height : 0);
  const row = (amounts) => amounts.map((amount, index) => [x(index), y(amount)]);
  let below = drawn.map(() => 0);
  const areas = [];
  for (const [cause] of CAUSES) {
    const amounts = drawn.map(({ stranded }) => stranded[cause] ?? 0);
    if (!amounts.some((amount) => amount > 0)) continue;
    const above = amounts.map((amount, index) => below[index] + amount);
    areas.push({ cause, outline: textOf([...row(above), ...row(below).reverse()]) });
    below = above;
  }
  return { areas, line: textOf(row(drawn.map(({ idle }) => idle))) };
}

function textOf(points) {
  return points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
}
