package change

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"blast/tuning"
)

// Restore undoes what the journal holds, in reverse, and removes it. What somebody else changed since is left, unless force is set,
// and is in the outcome as StateForeign. After a reboot nothing is left to undo. A setting that cannot be put back is StateLost: the
// error says so and the journal stays. ErrNoJournal: nothing was applied.
func (t Tuner) Restore(force bool) ([]Outcome, error) {
	j, err := openJournal(t.journal())
	if err != nil {
		return nil, err
	}
	if j.header.Schema == "" { // died before it wrote a whole header, so before any change
		return nil, j.remove()
	}
	if j.header.Boot != t.boot() {
		return t.rebooted(j)
	}
	if j.header.NetNS != t.netns() {
		return nil, errors.Join(fmt.Errorf("applied in network namespace %s, this is %s: restore from there (nsenter)", j.header.NetNS, t.netns()), j.close())
	}
	return t.undo(j, force)
}

// rebooted reports what is there now, and removes the journal.
func (t Tuner) rebooted(j *journal) ([]Outcome, error) {
	var out []Outcome
	for _, e := range firsts(j.entries) {
		o := Outcome{Change: e.Change, Old: e.old, State: StateBack, Why: "the host was rebooted"}
		if now, err := t.system().Get(t.relocate(e.Change)); err != nil || now != e.old {
			o.State, o.Why = StateForeign, "the host was rebooted and now starts with another value"
		}
		out = append(out, o)
	}
	return out, j.remove()
}

// undo puts the entries of an open journal back, the last first.
func (t Tuner) undo(j *journal, force bool) ([]Outcome, error) {
	foreign := map[string]string{}
	if !force && !j.restoring {
		foreign = t.foreign(j.entries)
	}
	t.step("begin to restore")
	if err := j.add(record{Restoring: true}); err != nil {
		return nil, errors.Join(err, j.close())
	}
	var out []Outcome
	lost := false
	for _, e := range slices.Backward(j.entries) {
		o := Outcome{Change: e.Change, Old: e.old, State: StateForeign}
		if now, is := foreign[e.Key]; is {
			o.Why = fmt.Sprintf("somebody set it to %q since", short(now))
		} else {
			o.State, o.Why = t.putBack(e)
		}
		lost = lost || o.State == StateLost
		if !e.Keep && !e.refused {
			out = append(out, o)
		}
	}
	if lost {
		return out, errors.Join(fmt.Errorf("not everything could be put back; the journal stays: %s", j.path), j.close())
	}
	t.step("remove journal")
	return out, j.remove()
}

// putBack writes one old value, if it is not there.
func (t Tuner) putBack(e entry) (state, why string) {
	system, key := t.system(), t.relocate(e.Change)
	now, err := system.Get(key)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
		return StateBack, "gone, and what was set with it" // such as a queue, after its channels were put back
	case err != nil:
		return StateLost, explain(err)
	case now == e.old:
		return StateBack, ""
	}
	t.step("restore %s", key)
	err = system.Set(key, e.old)
	if err != nil && e.Item == Channels {
		// As in Apply: the table may name queues that would go. The table itself is noted before the channels and comes after.
		iface, _, _ := strings.Cut(key, " ")
		if system.Set(deviceKey(iface, tuning.RSSConfig), "table=default") == nil {
			err = system.Set(key, e.old)
		}
	}
	if err != nil {
		// A managed interrupt that was only noted never moved by us.
		if e.Keep || e.refused {
			return StateBack, explain(err)
		}
		return StateLost, explain(err)
	}
	return StateRestored, ""
}

// foreign finds settings that hold neither what was set last nor anything that was there before. A change that may have been
// under way when the process died is never called foreign, nor is what was noted because another change disturbs it.
func (t Tuner) foreign(entries []entry) map[string]string {
	out, unsure := map[string]string{}, map[string]bool{}
	for i, e := range entries {
		now, err := t.system().Get(t.relocate(e.Change))
		unsure[e.Key] = unsure[e.Key] || e.Keep || !e.done && !e.refused
		known := err != nil || e.done && now == e.after || now == e.old
		for _, other := range entries[:i] {
			known = known || other.Key == e.Key && (now == other.old || other.done && now == other.after)
		}
		delete(out, e.Key)
		if !known && !unsure[e.Key] && !e.refused {
			out[e.Key] = now
		}
	}
	return out
}

// firsts are the first entries of each key: what was there before anything.
func firsts(entries []entry) []entry {
	var out []entry
	for _, e := range entries {
		if !slices.ContainsFunc(out, func(o entry) bool { return o.Key == e.Key }) {
			out = append(out, e)
		}
	}
	return out
}

// State is what blast tune status tells.
type State struct {
	Header   Header    `json:"header"`
	Rebooted bool      `json:"rebooted"`
	Busy     bool      `json:"busy"` // its owner is at work
	Changes  []Outcome `json:"changes"`
}

// Status reads the journal and compares; it changes nothing. ErrNoJournal: nothing is applied.
func (t Tuner) Status() (State, error) {
	j, err := readJournal(t.journal())
	if err != nil {
		return State{}, err
	}
	s := State{Header: j.header, Rebooted: j.header.Boot != t.boot(), Busy: j.busy()}
	defer j.close()
	foreign := t.foreign(j.entries)
	for _, e := range j.entries {
		if e.Keep {
			continue
		}
		o := Outcome{Change: e.Change, Old: e.old, State: StateApplied}
		now, err := t.system().Get(t.relocate(e.Change))
		_, changed := foreign[e.Key]
		switch {
		case e.refused:
			o.State = StateRefused
		case err != nil:
			o.State, o.Why = StateLost, explain(err)
		case now == e.old:
			o.State = StateBack
		case changed:
			o.State, o.Why = StateForeign, fmt.Sprintf("now %q", short(now))
		case !e.done:
			o.State = StateHalf
		}
		s.Changes = append(s.Changes, o)
	}
	return s, nil
}

// short cuts a value for people.
func short(v string) string {
	const most = 60
	if len(v) > most {
		return v[:most] + "..."
	}
	return v
}
