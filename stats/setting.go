package stats

import (
	"fmt"
	"strings"
)

// Setting is one thing that two runs may have done differently.
type Setting struct {
	Name, Value string
	// PerShard settings may differ between the shards of one run.
	PerShard bool
}

// Settings are what must be the same for two results to be about the same question, in a fixed order.
func (r *Result) Settings() []Setting {
	c, b, h := &r.Config, &r.Backend, &r.Host
	target := FormatPPS(r.Rate.TargetPPS)
	if !c.Paced {
		target = "max"
	}
	shared := func(name string, value any) Setting { return Setting{name, fmt.Sprint(value), false} }
	own := func(name string, value any) Setting { return Setting{name, fmt.Sprint(value), true} }
	return []Setting{
		shared("mode", c.Mode), shared("model", c.Model), own("clients", c.Clients), shared("think", FormatNS(c.ThinkNS)), own("senders", c.Senders),
		own("max in flight", c.MaxInFlight), shared("correction", FormatNS(c.CorrectNS)), shared("profile", c.Profile), shared("paced", c.Paced), own("target rate", target),
		shared("duration", FormatNS(c.DurationNS)), shared("warm-up", FormatNS(c.WarmupNS)), shared("timeout", FormatNS(c.TimeoutNS)),
		shared("drain", FormatNS(c.DrainNS)), shared("max lag", FormatNS(c.MaxLagNS)), shared("payload bytes", c.PayloadBytes), shared("payload", c.Payload),
		shared("clock start", c.ClockStart), shared("batch", c.Batch), shared("catch-up", c.CatchUp), shared("wait", c.Wait),
		shared("SLOs", strings.Join(c.SLOs, " ")), shared("rounds", c.Rounds),
		own("targets", strings.Join(c.Targets, " ")), own("flows", c.Flows), own("workers", c.Workers), own("CPUs", strings.Trim(fmt.Sprint(c.CPUs), "[]")), own("seed", c.Seed),
		shared("backend", b.Name), shared("backend mode", b.Mode), shared("GSO", b.GSO), shared("GRO", b.GRO), shared("zero-copy", b.ZeroCopy),
		own("host", h.Hostname), own("kernel", h.Kernel), own("CPU", h.CPU), own("NIC", h.NIC), own("driver", h.Driver), own("clocksource", h.Clocksource),
		own("governor", h.Governor), shared("blast", h.Blast),
	}
}
