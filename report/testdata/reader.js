// Reads an HdrHistogram log on stdin with hdr-histogram-js and prints, as JSON, what each tagged histogram in it says.
// Usage: node reader.js MODULES < LOG
const hdr = require(process.argv[2] + "/hdr-histogram-js");
const log = require("fs").readFileSync(0, "utf8");
const reader = new hdr.HistogramLogReader(log, 64, false);
const out = {};
for (let h; (h = reader.nextIntervalHistogram()) !== null; ) {
  const p = {};
  for (const q of [50, 90, 99, 99.9, 99.99]) p[q] = h.getValueAtPercentile(q);
  out[h.tag] = {
    count: h.totalCount, mean: h.mean, percentiles: p,
    start_ms: h.startTimeStampMsec, end_ms: h.endTimeStampMsec, hgrm: h.outputPercentileDistribution(5, 1e6),
  };
}
process.stdout.write(JSON.stringify(out));
