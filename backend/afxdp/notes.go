package afxdp

import "fmt"

// notes are what happened on the way.
func (s *Sender) notes() []string {
	notes := s.link.notes()
	if s.stall != nil {
		notes = append(notes, fmt.Sprintf("stall: %v", s.stall))
	}
	if s.closed || s.settled {
		return notes
	}
	if n := s.sock.Outstanding(); n > 0 && s.stall != nil {
		notes = append(notes, fmt.Sprintf("stall: %d packets are still with the kernel, which has not said whether they were sent", n))
	}
	return notes
}
