package uring

import "errors"

var (
	// ErrThread means that a ring was used on another OS thread than the one that made it.
	ErrThread = errors.New("uring: ring used on another thread than the one that made it; lock the goroutine to its thread before New")
	// ErrForeign means that an entry points at memory outside the ring's arena. Nothing of the batch was submitted.
	ErrForeign = errors.New("uring: entry points outside the arena")
	// ErrLost means that the kernel could not keep completions for want of memory. The ring's accounts are wrong from here on.
	ErrLost = errors.New("uring: completions lost by the kernel")
)

// UnsupportedError says that something will not work on this host, why, and what would change it. It matches
// errors.ErrUnsupported and the kernel's own error.
type UnsupportedError struct {
	What string // what was wanted, such as "io_uring" or "provided-buffer ring"
	Why  string // what is in the way
	Fix  string // the command or change that removes it; may be empty
	Err  error  // what the kernel said; may be nil
}

// Error is one line.
func (e *UnsupportedError) Error() string {
	s := "uring: " + e.What + ": " + e.Why
	if e.Fix != "" {
		s += "; fix: " + e.Fix
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is match errors.ErrUnsupported and the errno.
func (e *UnsupportedError) Unwrap() []error {
	if e.Err == nil {
		return []error{errors.ErrUnsupported}
	}
	return []error{errors.ErrUnsupported, e.Err}
}
