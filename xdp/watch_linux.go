package xdp

import (
	"errors"
	"fmt"
)

// ErrStalled is wrapped by what Reap returns when frames are with the kernel and none comes back.
var ErrStalled = errors.New("no completion")

// watch is the watchdog: frames are out and none came back in this call.
func (s *sender) watch() error {
	now := s.now()
	switch {
	case s.idleSince == 0:
		s.idleSince = now
	case now-s.idleSince < s.stall:
	case s.stallError == nil:
		s.stallError = s.explain(fmt.Errorf("%w for %s, %d frames outstanding, %d of them still in the transmit ring",
			ErrStalled, s.stall, s.outstanding, s.tx.Used()))
	}
	return s.stallError
}
