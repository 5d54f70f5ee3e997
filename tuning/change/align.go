package change

import (
	"blast/tuning"
)

// Align makes the changes of the given items that the host needs for a workload: first those that change what there is to place, then,
// with the host read anew, interrupts and XPS for the seats that tuning.Place chooses by cfg.
func (s *Session) Align(w tuning.Workload, iface string, cfg tuning.PlaceConfig, items []Item) ([]Outcome, tuning.Placement, error) {
	r := s.t.Reader
	inv, err := r.Inventory(iface)
	if err != nil {
		return nil, tuning.Placement{}, s.abandon(err)
	}
	cfg.Workers = w.Workers
	if _, err := tuning.Place(inv, cfg); err != nil { // before anything is changed
		return nil, tuning.Placement{}, s.abandon(err)
	}
	out, err := s.Apply(Plan(inv, tuning.Check(inv, w), w, items))
	if err != nil {
		return out, tuning.Placement{}, err
	}
	if inv, err = r.Inventory(iface); err != nil {
		return out, tuning.Placement{}, s.abandon(err)
	}
	p, err := tuning.Place(inv, cfg)
	if err != nil {
		return out, tuning.Placement{}, s.abandon(err)
	}
	placed, err := s.Apply(PlanSeats(inv, p, items))
	return append(out, placed...), p, err
}

// Preview is what Align would change, with nothing changed: where channels come first, interrupts and XPS are those of today's queues.
func (t Tuner) Preview(w tuning.Workload, iface string, cfg tuning.PlaceConfig, items []Item) ([]Outcome, tuning.Placement, error) {
	inv, err := t.Reader.Inventory(iface)
	if err != nil {
		return nil, tuning.Placement{}, err
	}
	cfg.Workers = w.Workers
	p, err := tuning.Place(inv, cfg)
	if err != nil {
		return nil, tuning.Placement{}, err
	}
	var out []Outcome
	for _, c := range append(Plan(inv, tuning.Check(inv, w), w, items), PlanSeats(inv, p, items)...) {
		if c.Keep {
			continue
		}
		o := Outcome{Change: c}
		old, err := t.system().Get(c.Key)
		switch {
		case err != nil:
			o.State, o.Why = StateRefused, explain(err)
		case same(c.Key, old, c.New):
			o.State = StateAlready
		}
		o.Old = old
		out = append(out, o)
	}
	return out, p, nil
}

// abandon puts everything back because of an error.
func (s *Session) abandon(err error) error {
	if undo := s.Undo(); undo != nil {
		return undo
	}
	return err
}
