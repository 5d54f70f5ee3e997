package pace

// Steady reports whether s is of one rate from beginning to end: constant, Poisson, burst and tick plans, and not Unpaced, which has no
// rate of its own.
func Steady(s Schedule) bool {
	switch s := s.(type) {
	case *Process:
		return true
	case *Plan:
		return len(s.pieces) == 1 && s.pieces[0].curve == nil
	}
	return false
}
