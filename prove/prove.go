package prove

import (
	"fmt"
	"slices"
	"strings"

	"blast/stats"
)

// Judge returns the five controls in the order of stats.Prove and what follows from them.
func Judge(e *Evidence) ([]stats.Control, stats.Conclusion) {
	controls := []stats.Control{baseline(e), generator(e), target(e), noop(e), two(e)}
	return controls, conclude(e, controls)
}

// ExitCode is what a proof means to a shell: 0 when the generator is not the wall, so that figures taken at this rate speak about the target;
// 3 when it is, or when that cannot be told.
func ExitCode(c stats.Conclusion) int {
	if c.Points == stats.PointsTarget || c.Points == stats.PointsNeither {
		return 0
	}
	return 3
}

// finding collects a control.
type finding struct{ stats.Control }

func (f *finding) say(format string, args ...any) {
	f.Evidence = append(f.Evidence, fmt.Sprintf(format, args...))
}

// decide says a sentence and settles where the control points by it. The generator outweighs everything, for one broken part of it is
// enough; doubt outweighs that nothing was slow. The sentence that settles it comes first.
func (f *finding) decide(at, format string, args ...any) {
	rank := []string{"", stats.PointsNeither, stats.PointsUnknown, stats.PointsTarget, stats.PointsGenerator}
	if slices.Index(rank, at) <= slices.Index(rank, f.Points) {
		f.say(format, args...)
		return
	}
	f.Points = at
	f.Evidence = slices.Insert(f.Evidence, 0, fmt.Sprintf(format, args...))
}

// done gives the control, with no direction as unknown.
func (f *finding) done() stats.Control {
	if f.Points == "" {
		f.Points = stats.PointsUnknown
	}
	return f.Control
}

// keep adds the runs that a control rests on.
func (f *finding) keep(results ...*stats.Result) {
	for _, r := range results {
		if r != nil {
			f.Results = append(f.Results, *r)
		}
	}
}

// conclude weighs the controls. None outvotes another: where two of them point at different sides the answer is that it cannot be told.
func conclude(e *Evidence, controls []stats.Control) stats.Conclusion {
	if e.Run == nil {
		return unknown("nothing was measured against the target%s", because(e.Interrupted))
	}
	l := loadOf(e.Run)
	says := fmt.Sprintf("%s of %s asked was sent, %s of it answered (%s)", stats.FormatPPS(l.sent), stats.FormatPPS(e.AskedPPS), stats.FormatPercent(l.share), stats.FormatPPS(l.answered))
	g, t := pointing(controls, stats.PointsGenerator), pointing(controls, stats.PointsTarget)
	switch {
	case e.Interrupted != "":
		return unknown("it ended early%s: %s, and not all controls were made", because(e.Interrupted), says)
	case l.reached():
		return stats.Conclusion{Points: stats.PointsNeither, Detail: fmt.Sprintf("%s: the generator kept its plan and the target kept up, so neither is the wall at this rate%s",
			says, doubts(controls))}
	case len(g) == 0 && !l.valid:
		return unknown("%s, but the counts of that run contradict each other (%s)", says, codes(e.Run))
	case len(g) > 0 && len(t) > 0:
		return unknown("the evidence conflicts: %s points at the generator (%s), but %s points at the target (%s). %s", title(g[0]), first(g[0]), title(t[0]), first(t[0]), resolve(l))
	case len(g) == 1 && g[0].Name == stats.ControlTwo && l.valid:
		return unknown("the evidence conflicts: the run was VALID, so one generator sent all that was asked (%s), but %s. A limit for each source or flow, on the way or "+
			"in the target, looks like this; prove again with more --flows", says, first(g[0]))
	case len(g) > 0:
		return stats.Conclusion{Points: stats.PointsGenerator, Detail: fmt.Sprintf("the generator is the wall%s: %s; %s. Figures taken at this rate measure the generator", inTime(l), says, first(g[0]))}
	case len(t) > 0:
		return stats.Conclusion{Points: stats.PointsTarget, Detail: fmt.Sprintf("the target%s is the wall, at about %s: %s; %s", orPath(e, t), stats.FormatPPS(l.answered), says, first(t[0]))}
	}
	return unknown("%s, and no control says why%s", says, doubts(controls))
}

func unknown(format string, args ...any) stats.Conclusion {
	return stats.Conclusion{Points: stats.PointsUnknown, Detail: "cannot tell: " + fmt.Sprintf(format, args...)}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// pointing lists the controls that point somewhere, the hardest evidence first.
func pointing(controls []stats.Control, at string) []stats.Control {
	var out []stats.Control
	for _, name := range []string{stats.ControlTwo, stats.ControlNoop, stats.ControlTarget, stats.ControlGenerator, stats.ControlBaseline} {
		for _, c := range controls {
			if c.Name == name && c.Points == at {
				out = append(out, c)
			}
		}
	}
	return out
}

// title names a control for people.
func title(c stats.Control) string {
	return map[string]string{stats.ControlBaseline: "the baseline", stats.ControlGenerator: "the generator's own state", stats.ControlTarget: "the target's host",
		stats.ControlNoop: "the no-op", stats.ControlTwo: "the second generator"}[c.Name]
}

// first is the sentence that settled a control that points somewhere.
func first(c stats.Control) string { return c.Evidence[0] }

// resolve says how to get out of a conflict.
func resolve(l load) string {
	if !l.valid {
		return "While the generator breaks its plan it hides the target: prove again at a rate that blast udp finds VALID"
	}
	return "Look at both before trusting either"
}

// doubts lists the controls that say neither yes nor no.
func doubts(controls []stats.Control) string {
	var names []string
	for _, c := range controls {
		if c.Points == stats.PointsUnknown {
			names = append(names, title(c))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; in doubt or unknown: " + strings.Join(names, ", ")
}

// inTime tells a generator that sent everything, only late, from one that could not send it.
func inTime(l load) string {
	if l.full() {
		return ", in time though not in throughput"
	}
	return ""
}

// orPath widens the target to the path where nothing on the target's host was looked at.
func orPath(e *Evidence, pointing []stats.Control) string {
	for _, c := range pointing {
		if c.Name == stats.ControlTarget || c.Name == stats.ControlNoop && e.Noop.OnTarget {
			return ""
		}
	}
	return " (or the path to it: nothing on its host was looked at)"
}
