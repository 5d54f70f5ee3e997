package report

import (
	"fmt"

	"blast/stats"
)

// model says in a sentence what decided when packets left.
func model(c *stats.Config) string {
	switch {
	case c.Model == stats.ModelClosed:
		return fmt.Sprintf("closed: %s, each sends, waits for its reply (or the timeout), thinks for %s and sends again; the slower the target, the lower the load",
			plural(c.Clients, "client"), stats.FormatNS(c.ThinkNS))
	case c.Model == stats.ModelBlocking:
		return fmt.Sprintf("blocking: a plan fixed before the run (%s) is dealt to %s, each blocked until its last packet has its reply (or the timeout)",
			c.Profile, plural(c.Senders, "sender"))
	case !c.Paced:
		return fmt.Sprintf("%s loop: packets leave as fast as they are taken, without a plan, replies or not", c.Model)
	case c.MaxInFlight > 0:
		return fmt.Sprintf("%s loop with a cap: packets leave by a plan fixed before the run (%s), but only while fewer than %d are in flight", c.Model, c.Profile, c.MaxInFlight)
	}
	return fmt.Sprintf("%s loop: packets leave by a plan fixed before the run (%s), replies or not", c.Model, c.Profile)
}

// waits reports whether sending depended on replies, so that latency from planned and from actual are different questions.
func waits(c *stats.Config) bool { return c.Model == stats.ModelBlocking || c.MaxInFlight > 0 }

// little is Little's law: what was in flight against rate x mean latency.
func (p *page) little(r *stats.Result) {
	if r.Little == nil {
		return
	}
	p.line("Little", "%s", littleSentence(r))
}

func littleSentence(r *stats.Result) string {
	l := r.Little
	if l.Unchecked != "" {
		return "in flight = rate x mean latency was not checked: " + l.Unchecked
	}
	return fmt.Sprintf("in flight on average %.4g (%s), rate x mean latency %s x %s%s = %.4g: %s", l.InFlight, counted(l.Samples, "look"),
		stats.FormatPPS(l.RatePPS), stats.FormatNS(l.LatencyNS), invalidWord(r), l.Product(), littleSays(l))
}

func littleSays(l *stats.Little) string {
	if l.Suspect != "" {
		return fmt.Sprintf("they are %+.1f %% apart; suspect %s", 100*l.Off, l.Suspect)
	}
	return fmt.Sprintf("they agree (%+.1f %%, limit %.0f %%)", 100*l.Off, 100*stats.LittleLimit)
}
