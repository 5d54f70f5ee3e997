package serve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Stall is a time in which a queueing target is frozen as a whole: nothing starts, and nothing completes. It counts from the first
// packet of a run.
type Stall struct {
	From, To time.Duration
}

// ParseStall reads "5s..7s".
func ParseStall(text string) (Stall, error) {
	a, b, ok := strings.Cut(text, "..")
	from, errA := time.ParseDuration(a)
	to, errB := time.ParseDuration(b)
	if !ok || errA != nil || errB != nil {
		return Stall{}, fmt.Errorf("stall %q: want FROM..TO from the first packet of a run, such as 5s..7s", text)
	}
	s := Stall{from, to}
	return s, s.check()
}

// String is the form that ParseStall reads.
func (s Stall) String() string { return s.From.String() + ".." + s.To.String() }

func (s Stall) check() error {
	if s.From < 0 || s.To <= s.From {
		return fmt.Errorf("stall %v: want FROM at 0 or later, and TO after it", s)
	}
	return nil
}

// ordered checks a list of stalls and puts it in order of time.
func ordered(stalls []Stall) ([]Stall, error) {
	stalls = slices.Clone(stalls)
	slices.SortFunc(stalls, func(a, b Stall) int { return int(min(max(a.From-b.From, -1), 1)) })
	var errs []error
	for i, s := range stalls {
		if err := s.check(); err != nil {
			errs = append(errs, err)
		} else if i > 0 && s.From <= stalls[i-1].To {
			errs = append(errs, fmt.Errorf("stalls %v and %v overlap or touch", stalls[i-1], s))
		}
	}
	return stalls, errors.Join(errs...)
}

// Queue computes when requests to c parallel servers with one FIFO queue leave them. It has no clock: times are ns from the first
// packet of a run, and requests are admitted in order of arrival. Work goes on in virtual time, which stands still during a stall:
//
//	start   = max(virtual(arrival), the time at which the first server is free)
//	depart  = real(start + service)
//
// so that what a stall finds in service resumes where it was (start + service + length of the stall), and what arrives during it starts at its
// end.
type Queue struct {
	stalls []Stall
	free   []int64 // by server: the virtual time at which it is free; a heap, the earliest first
}

// NewQueue makes an idle queue of servers servers; stalls must be in order and must not overlap.
func NewQueue(servers int, stalls []Stall) *Queue {
	return &Queue{stalls: stalls, free: make([]int64, servers)}
}

// Admit takes a request that arrives at at and needs service; it returns when that starts and when it leaves, ns.
func (q *Queue) Admit(at, service int64) (start, depart int64) {
	begin := max(q.virtual(at), q.free[0])
	q.free[0] = begin + service
	q.sink()
	start = q.resumed(begin)
	return start, max(q.real(begin+service), start)
}

// Later is the real time that lies wait of work after at.
func (q *Queue) Later(at, wait int64) int64 { return q.real(q.virtual(at) + wait) }

// sink restores the heap after its first element grew.
func (q *Queue) sink() {
	h := q.free
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c] < h[least] {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// virtual is the working time until t.
func (q *Queue) virtual(t int64) int64 {
	v := t
	for _, s := range q.stalls {
		if t <= int64(s.From) {
			break
		}
		v -= min(t, int64(s.To)) - int64(s.From)
	}
	return v
}

// real is the earliest time by which v of working time has passed.
func (q *Queue) real(v int64) int64 {
	for _, s := range q.stalls {
		if v <= int64(s.From) {
			break
		}
		v += int64(s.To - s.From)
	}
	return v
}

// resumed is the latest time at which v of working time has passed: when a stall begins just then, its end.
func (q *Queue) resumed(v int64) int64 {
	for _, s := range q.stalls {
		if v < int64(s.From) {
			break
		}
		v += int64(s.To - s.From)
	}
	return v
}
