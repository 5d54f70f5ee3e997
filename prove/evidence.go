package prove

import (
	"blast/stats"
	"blast/verdict"
)

// Evidence is what the controls are judged by. The zero value is no evidence at all.
type Evidence struct {
	// AskedPPS is the rate of the proof.
	AskedPPS float64
	// Run is the load against the target; nil when it did not come to that. Of several attempts it is the last one: one that is INVALID is
	// repeated, for a neighbour may have disturbed it.
	Run      *stats.Result
	Attempts int
	Baseline Baseline
	// Own is this host during Run, nil when it could not be read.
	Own *stats.HostUse
	// OwnRemark says why cores without a worker are not the generator's alone, empty when they are.
	OwnRemark string
	// Target is the target's host during Run, nil when nobody told; TargetWhy says why.
	Target    *stats.HostUse
	TargetWhy string
	Noop      Noop
	Two       Two
	// Unsettled says that the target was not idle before a run although nothing of this proof was under way; empty when it was.
	Unsettled string
	// Interrupted says why gathering ended early.
	Interrupted string
}

// Baseline is the generator against a no-op echo on loopback, with the backend, payload and flows of Run.
type Baseline struct {
	// Same is at the rate of the proof, Ample at Margin times that; nil = not measured, and Why says why.
	Same, Ample *stats.Result
	Why         string
	// Stored is the ceiling that blast calibrate found, nil without one.
	Stored *stats.Calibration
}

// Noop is the load of Run against a no-op of the same protocol.
type Noop struct {
	// Run is nil when there was none, and Why says why.
	Run *stats.Result
	Why string
	// Where is its address. OnTarget says that it is on the target's host, reached by the same path; else it is on loopback.
	Where    string
	OnTarget bool
}

// Two is two generators at once, each with the load of Run.
type Two struct {
	// Parts are their results; empty when they did not run, and Why says why.
	Parts []stats.Result
	Why   string
	// Shared says in words what they take from each other, empty when each has CPUs of its own.
	Shared string
}

// The thresholds of the controls.
const (
	// Margin is how many times the rate the generator should reach against a no-op; 3 to 5 is the rule.
	Margin = 3
	// keeps is the share of what was sent that a target which keeps up answers, and of what was asked that a generator which keeps up sends.
	keeps = 1 - stats.Shortfall
	// nearly is the share of what was asked that each of two generators must send for the load to count as doubled.
	nearly = 0.9
	// fair and full bound the water level of a core: below fair it has room, above full it has none.
	fair, full = 0.65, 0.70
	// busy is the water level at which a core of the target is its wall.
	busy = 0.90
	// few is the share of packets whose loss is not yet a sign.
	few = 0.001
	// taken is the share of CPU time that a hypervisor may take.
	taken = 0.02
	// rises and stays bound the ratio of two throughputs: from rises on the second is clearly more, up to stays it is the same.
	rises, stays = 1.5, 1.2
	// doubles is the ratio from which two generators got twice as much.
	doubles = 1.8
)

// load is a run in the figures that the controls compare.
type load struct {
	asked, sent, answered float64 // packets per second
	share                 float64 // of the packets sent, answered
	kept                  bool    // the generator sent what was planned
	valid                 bool
}

// loadOf takes the answers from the part of the run in which they came at the target's own pace: not from its beginning, when the first are
// on their way, nor from its last interval, in which the drain's stand. A target that falls behind looks better than it is with those.
func loadOf(r *stats.Result) load {
	l := wholeOf(r)
	back, ok := r.Settled()
	if !ok {
		return l
	}
	l.answered = back.Throughput()
	// A target that is too slow falls behind all the time; one stall at the end of the window would look the same there, but not before.
	if !back.KeptUp(1) {
		l.share = min(l.share, back.Share())
	}
	return l
}

// wholeOf takes the answers of the whole run, the drain's as well.
func wholeOf(r *stats.Result) load {
	l := load{asked: r.Rate.TargetPPS, sent: r.Rate.AchievedPPS, answered: r.Rate.RepliedPPS, valid: r.Verdict.Valid}
	if r.Ledger.Sent > 0 {
		l.share = float64(r.Ledger.Replied+r.Ledger.Late) / float64(r.Ledger.Sent)
	}
	l.kept = l.asked > 0 && l.sent >= keeps*l.asked
	return l
}

// full says that all was sent and answered, whether in time or not: throughput has nothing left to rise to.
func (l load) full() bool { return l.kept && l.share >= keeps }

// reached says that the generator kept its plan in time as well.
func (l load) reached() bool { return l.valid && l.full() }

// contradicts says that a code of the verdict speaks of counts that cannot be, rather than of a generator that is too slow.
func contradicts(code string) bool { return code == verdict.CodeLedger || code == verdict.CodeRange }
