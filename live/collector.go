package live

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"blast/stats"
)

// collector makes the metrics of a Page whenever it is scraped.
type collector struct {
	page   *Page
	bounds []int64

	info, round, finished, elapsed, rate       *prometheus.Desc
	planned, sent, refused, abandoned, dropped *prometheus.Desc
	replied, late, duplicate, reordered        *prometheus.Desc
	stray, selfLost, lost, inFlight            *prometheus.Desc
	duty, workerSent, broken, valid            *prometheus.Desc
	latency, service, lag                      *prometheus.Desc
}

func newCollector(p *Page) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("blast_"+name, help, labels, nil)
	}
	return &collector{
		page: p, bounds: bounds(),
		info:     desc("info", "The run. Always 1.", "run_id", "backend", "target", "mode", "model", "version"),
		round:    desc("rounds_finished", "Rounds, or steps of a ladder, that have ended."),
		finished: desc("finished", "1 once the figures are those of the result, until a further round begins."),
		elapsed:  desc("elapsed_seconds", "Measured time of the current round so far."),
		rate:     desc("target_packets_per_second", "Rate of the plan in the last interval, 0 without a plan; once finished, its mean."),

		planned:   desc("planned_packets_total", "Packets that the plan wanted sent by now: sent + refused + abandoned + kernel dropped + not sent yet."),
		sent:      desc("sent_packets_total", "Packets that the kernel accepted, or completed without a drop."),
		refused:   desc("refused_packets_total", "Packets that the kernel refused, by cause.", "cause"),
		abandoned: desc("abandoned_packets_total", "Packets given up because they were late, never offered to the kernel."),
		dropped:   desc("kernel_dropped_packets_total", "Packets accepted and then dropped before the wire."),
		replied:   desc("replied_packets_total", "Packets whose first reply came within the timeout."),
		late:      desc("late_packets_total", "Packets whose first reply came after the timeout."),
		duplicate: desc("duplicate_replies_total", "Replies to packets that had one already."),
		reordered: desc("reordered_replies_total", "Replies that came behind one to a later packet of their flow."),
		stray:     desc("stray_packets_total", "Packets received that belong to no packet of this run."),
		selfLost:  desc("self_lost_replies_total", "Replies that the generator's own receive path dropped."),
		lost:      desc("lost_packets", "Packets without a reply whose timeout has passed. A late reply takes one off again."),
		inFlight:  desc("in_flight_packets", "Packets without a reply whose timeout has not passed."),

		duty:       desc("worker_duty_ratio", "Share of its time that a sending thread did not wait.", "worker", "cpu"),
		workerSent: desc("worker_sent_packets", "Packets sent by one sending thread in the current round.", "worker", "cpu"),
		broken:     desc("invalid", "1 where this code makes the run INVALID as it stands; before the end it may heal.", "code"),
		valid:      desc("valid", "1 while no code makes the run INVALID."),

		latency: desc("latency_seconds", "From the planned send time to the reply, late ones included."),
		service: desc("service_seconds", "From the actual send time to the reply, late ones included."),
		lag:     desc("lag_seconds", "How much later than planned packets were sent."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. The registry calls it in a goroutine of its own.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	p := c.page
	defer p.confine()()
	p.mu.Lock()
	defer p.mu.Unlock()
	var l stats.Ledger
	l.Add(&p.past.ledger)
	l.Add(&p.now.ledger)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.info, 1, p.cfg.RunID, p.cfg.Backend, p.cfg.Target, p.cfg.Mode, p.cfg.Model, p.cfg.Version)
	gauge(c.round, float64(p.round))
	gauge(c.finished, oneIf(p.finished))
	gauge(c.elapsed, p.elapsed.Seconds())
	gauge(c.rate, p.rate)
	gauge(c.lost, float64(l.Lost))
	gauge(c.inFlight, float64(l.InFlight))
	for i, w := range p.workers {
		gauge(c.duty, w.Duty, strconv.Itoa(i), cpuName(w.CPU))
		gauge(c.workerSent, float64(w.Sent), strconv.Itoa(i), cpuName(w.CPU))
	}
	gauge(c.valid, oneIf(len(p.broken) == 0))
	for _, code := range p.cfg.Codes {
		gauge(c.broken, oneIf(p.broken[code]), code)
	}
	c.counters(ch, &l)
	c.histogram(ch, c.latency, &p.past.latency, &p.now.latency)
	c.histogram(ch, c.service, &p.past.service, &p.now.service)
	c.histogram(ch, c.lag, &p.past.lag, &p.now.lag)
}

func (c *collector) counters(ch chan<- prometheus.Metric, l *stats.Ledger) {
	for _, m := range []struct {
		desc *prometheus.Desc
		n    uint64
	}{
		{c.planned, l.Planned}, {c.sent, l.Sent}, {c.abandoned, l.Abandoned}, {c.dropped, l.KernelDropped}, {c.replied, l.Replied}, {c.late, l.Late},
		{c.duplicate, l.Duplicate}, {c.reordered, l.Reordered}, {c.stray, l.Stray}, {c.selfLost, l.SelfLost},
	} {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.n))
	}
	for _, cause := range c.page.cfg.Causes {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(l.Refused[cause]), cause)
	}
}

// histogram sends the sum of hists, native and classic.
func (c *collector) histogram(ch chan<- prometheus.Metric, desc *prometheus.Desc, hists ...*stats.Hist) {
	v := convert(c.bounds, hists...)
	m, err := prometheus.NewConstNativeHistogram(desc, v.count, v.sumSeconds(), v.native, nil, v.zero, schema, zeroThreshold, c.page.created)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	ch <- withClassic{m, v.classicBuckets(c.bounds)}
}

// cpuName is a CPU as a label, empty for a thread that is not pinned.
func cpuName(cpu int) string {
	if cpu < 0 {
		return ""
	}
	return strconv.Itoa(cpu)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
