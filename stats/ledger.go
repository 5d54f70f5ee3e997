package stats

import "fmt"

// The modes of a run, Config.Mode.
const (
	ModeOneway = "oneway"
	ModeEcho   = "echo"
)

// The load models, Config.Model.
const (
	ModelOpen     = "open"
	ModelClosed   = "closed"
	ModelBlocking = "blocking"
)

// Check adds the ledger up and names the first line that does not balance, with the difference in packets. mode is
// Config.Mode; in oneway mode nothing can have been replied, late, lost or in flight.
func (l *Ledger) Check(mode string) error {
	if err := balance("planned", l.Planned, "sent + refused + abandoned + kernel dropped",
		l.Sent, l.RefusedTotal(), l.Abandoned, l.KernelDropped); err != nil {
		return err
	}
	if mode == ModeOneway {
		return balance("oneway, so 0", 0, "replied + late + lost + in flight", l.Replied, l.Late, l.Lost, l.InFlight)
	}
	if err := balance("sent", l.Sent, "replied + late + lost + in flight", l.Replied, l.Late, l.Lost, l.InFlight); err != nil {
		return err
	}
	return balance("lost", l.Lost, "lost up + lost down + lost unknown", l.LostUp, l.LostDown, l.LostUnknown)
}

func balance(what string, whole uint64, names string, parts ...uint64) error {
	var sum uint64
	for _, p := range parts {
		sum += p
	}
	if sum == whole {
		return nil
	}
	return fmt.Errorf("%s %d packets, but %s = %d packets: %d packets unaccounted for", what, whole, names, sum, int64(whole-sum))
}

// Unsent is the number of planned slots that never became sent packets.
func (l *Ledger) Unsent() uint64 { return l.RefusedTotal() + l.Abandoned + l.KernelDropped }

// Add sums other into l. The censoring bound becomes the smaller of the two, for it says "at least".
func (l *Ledger) Add(other *Ledger) {
	if other.InFlight > 0 && (l.InFlight == 0 || other.InFlightAtLeastNS < l.InFlightAtLeastNS) {
		l.InFlightAtLeastNS = other.InFlightAtLeastNS
	}
	l.Planned += other.Planned
	l.Sent += other.Sent
	if l.Refused == nil {
		l.Refused = map[string]uint64{}
	}
	for cause, n := range other.Refused {
		l.Refused[cause] += n
	}
	l.Abandoned += other.Abandoned
	l.KernelDropped += other.KernelDropped
	l.Replied += other.Replied
	l.Late += other.Late
	l.Duplicate += other.Duplicate
	l.Reordered += other.Reordered
	l.Lost += other.Lost
	l.InFlight += other.InFlight
	l.LostUp += other.LostUp
	l.LostDown += other.LostDown
	l.LostUnknown += other.LostUnknown
	l.SelfLost += other.SelfLost
	l.Stray += other.Stray
}

// Unanswered is the number of packets sent whose reply never came to be one of the recorded samples of a histogram: the lost
// ones. Those still in flight at the end are not among them; they are censored, not lost. 0 in oneway mode.
func (r *Result) Unanswered(recorded uint64) uint64 {
	known := r.Ledger.Sent - min(r.Ledger.InFlight, r.Ledger.Sent)
	if r.Config.Mode == ModeOneway || known <= recorded {
		return 0
	}
	return known - recorded
}
