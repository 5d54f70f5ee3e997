package iouring

import "fmt"

// zeroCopyNotes says how zero copy went.
func (s *Sender) zeroCopyNotes() (notes []string) {
	if s.why != nil {
		notes = append(notes, fmt.Sprintf("zero copy: given up on the way, packets are copied: %v", s.why))
	}
	if told := s.zeroSent - min(uint64(s.notices), s.zeroSent); told > 0 && s.zeroCopied > 0 {
		what := "a part of them"
		if s.zeroCopied >= told {
			what = "all of them (loopback, veth and devices without scatter-gather do)"
		}
		notes = append(notes, fmt.Sprintf("zero copy: the kernel copied %d of %d messages anyway, %s: slower than a plain copy", s.zeroCopied, told, what))
	}
	if s.zeroSent > 0 && !s.report {
		notes = append(notes, "zero copy: this kernel does not tell whether it copied anyway (6.2 does)")
	}
	return notes
}
