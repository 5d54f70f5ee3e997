package live

import (
	"errors"
	"math"
	"math/bits"

	"github.com/cilium/ebpf"
)

// Histogram is a histogram of ns in HdrHistogram's layout for 1 ns to 1 h at 3 digits, 33,792 buckets; sum and extremes are exact.
type Histogram struct {
	Buckets        []uint64
	Count, Refused uint64
	SumLo, SumHi   uint64
	Min, Max       int64
}

// buckets is the number of buckets.
const buckets = len(sendHistogram{}.Buckets)

// add merges a histogram of the kernel.
func (h *Histogram) add(k *sendHistogram) {
	h.Refused += k.Refused
	if k.Count == 0 {
		return
	}
	if h.Buckets == nil {
		h.Buckets = make([]uint64, buckets)
	}
	if h.Count == 0 {
		h.Min, h.Max = k.Min, k.Max
	}
	h.Min, h.Max = min(h.Min, k.Min), max(h.Max, k.Max)
	for i, n := range k.Buckets {
		h.Buckets[i] += n
	}
	h.Count += k.Count
	var carry uint64
	h.SumLo, carry = bits.Add64(h.SumLo, k.SumLo, 0)
	h.SumHi += k.SumHi + carry
}

// series reads one histogram of the kernel that is written in turns with others: each reading gives what is new since the last one.
// The kernel never clears, so nothing is lost when a reading comes late.
type series struct {
	last *sendHistogram // nil while it was empty: most CPUs of a large machine never see a reply
}

// next reads key of m and adds what is new to h. Where somebody writes so often that nothing coherent can be read, nothing is added: a later reading has it
// all. The kernel does not know the extremes of a difference: they are exact where they are
// those of all, and else the bounds of the outermost buckets.
func (s *series) next(m *ebpf.Map, key uint32, h *Histogram, tries int) error {
	now, ok, err := steady(m, key, tries)
	if !ok && err == nil && tries == triesLast {
		err = errors.New("histogram: written without a pause")
	}
	if err != nil || !ok {
		return err
	}
	diff := s.last
	if diff == nil {
		if now.Count == 0 && now.Refused == 0 {
			return nil
		}
		diff = &sendHistogram{}
	}
	first, last := -1, 0
	for i, n := range now.Buckets {
		if diff.Buckets[i] = n - diff.Buckets[i]; diff.Buckets[i] > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first >= 0 {
		diff.Min, diff.Max = max(bucketLow(first), now.Min), min(bucketLow(last+1)-1, now.Max)
	}
	diff.Count, diff.Refused = now.Count-diff.Count, now.Refused-diff.Refused
	var borrow uint64
	diff.SumLo, borrow = bits.Sub64(now.SumLo, diff.SumLo, 0)
	diff.SumHi = now.SumHi - diff.SumHi - borrow
	h.add(diff)
	s.last = now
	return nil
}

const (
	// triesNow is how often a histogram is read that can be read later as well, triesLast one that cannot: some tenths of a second.
	triesNow, triesLast = 8, 4000
)

// steady reads a histogram until two readings agree between two records, and reports whether they did. In an interval that is over hardly anybody
// writes, but a reader that comes late reads what is in use again; and a virtual CPU can be stopped in the middle of a record, which begun and done
// tell.
func steady(m *ebpf.Map, key uint32, tries int) (*sendHistogram, bool, error) {
	now := &sendHistogram{}
	if err := m.Lookup(key, now); err != nil {
		return nil, false, err
	}
	if now.Begun == 0 && now.Refused == 0 { // as on most CPUs of a large machine
		*now = sendHistogram{}
		return now, true, nil
	}
	for before := new(sendHistogram); tries > 0; tries-- {
		now, before = before, now
		if err := m.Lookup(key, now); err != nil {
			return nil, false, err
		}
		if now.Begun == now.Done && *now == *before {
			return now, true, nil
		}
	}
	return nil, false, nil
}

// bucketLow is the smallest value of bucket i.
func bucketLow(i int) int64 {
	if i < 2048 {
		return int64(i)
	}
	return int64(i&1023+1024) << uint(i>>10-1)
}

// never is a moment after all others, ns.
const never = math.MaxInt64
