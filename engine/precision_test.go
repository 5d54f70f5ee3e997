package engine

import (
	"context"
	"testing"
	"time"

	"blast/backend"
	"blast/pace"
	"blast/stats"
)

func TestSliceOf(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name                           string
		interval, length, least, slice time.Duration
	}{
		{"a minute has batches enough", s, 60 * s, sliceLeast, s},
		{"half a minute: two to a second", s, 30 * s, sliceLeast, 500 * ms},
		{"ten seconds: four to a second", s, 10 * s, sliceLeast, 250 * ms},
		{"a second: as short as may be", s, s, sliceLeast, 50 * ms},
		{"elsewhere slices are longer", s, 3 * s, sliceOffload, 250 * ms},
		{"intervals that are short already", 50 * ms, s, sliceLeast, 50 * ms},
		{"only whole parts", 3 * time.Nanosecond, s, 0, 3 * time.Nanosecond},
		{"days", 256 * s, 240 * time.Hour, sliceLeast, 256 * s},
	} {
		cfg := &Config{Interval: c.interval, Schedule: must[*pace.Plan](t)(pace.Constant(pace.Rate{Packets: 1, Per: time.Hour}, c.length))}
		if got := cfg.sliceOf(c.least); got != c.slice {
			t.Errorf("%s: %v, want %v", c.name, got, c.slice)
		}
		if cfg.Undivided = true; cfg.sliceOf(c.least) != c.interval {
			t.Errorf("%s: undivided: %v", c.name, cfg.sliceOf(c.least))
		}
	}
}

// What a steady target answers is told with its intervals and holds; a target that slows down by a third in the second half is found out,
// and the timeline stays one of seconds.
func TestPrecision(t *testing.T) {
	for _, c := range []struct {
		name     string
		schedule pace.Schedule
		slower   time.Duration // in the second half
		holds    bool
		compared bool
	}{
		{"steady", constant(t, 2000, 4*time.Second), 0, true, true},
		{"slower in the second half", constant(t, 2000, 4*time.Second), time.Millisecond, false, true},
		{"a ramp has no halves to compare", must[*pace.Plan](t)(pace.Ramp(pace.Rate{Packets: 1000, Per: time.Second}, pace.Rate{Packets: 3000, Per: time.Second},
			4*time.Second, 4*time.Second)), 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.schedule, 1)
			b.cfg.Echo = true
			b.fake.Reply = func(seq uint64, _ int, _ []byte) []time.Duration {
				d := 3*time.Millisecond + time.Duration(seq*7919%100)*10*time.Microsecond // seen at the next slot, 0.5 ms apart
				if seq >= 4000 {
					d += c.slower
				}
				return []time.Duration{d}
			}
			res := must[*stats.Result](t)(b.go_(t))
			if len(res.Timeline) != 4 {
				t.Errorf("%d intervals of the timeline: want 4", len(res.Timeline))
			}
			p := res.Precision
			for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
				v := p.Interval("latency", q)
				if v == nil || v.LowNS > v.ValueNS || v.HighNS < v.ValueNS || v.Samples != res.Latency.Count {
					t.Errorf("latency at %v: %+v", q, v)
				}
			}
			if v := p.Interval("latency", 0.99); v.ValueNS != res.Latency.P99 {
				t.Errorf("p99 %d, the interval's %d", res.Latency.P99, v.ValueNS)
			}
			if v := p.Interval("lag", 0.999); v == nil || v.ValueNS != res.Lag.P999 {
				t.Errorf("lag p99.9 %d, its interval %+v", res.Lag.P999, v)
			}
			switch s := p.Stationary; {
			case !c.compared:
				if s != nil {
					t.Errorf("compared: %+v", s)
				}
			case s == nil || s.Holds != c.holds || s.Of != "latency" || s.First.Samples+s.Second.Samples != res.Latency.Count:
				t.Errorf("stationary: %+v", s)
			case !c.holds && (s.Second.MeanNS-s.First.MeanNS < 0.95e6 || s.Second.MeanNS-s.First.MeanNS > 1.05e6):
				t.Errorf("the means %v and %v ns: want 1 ms between them", s.First.MeanNS, s.Second.MeanNS)
			}
		})
	}
}

// Without replies the lag is what is told of.
func TestPrecisionOneway(t *testing.T) {
	b := newBench(t, constant(t, 1000, 3*time.Second), 1)
	b.fake.Spend = func(int) { b.clk.T += 1000 }
	p := must[*stats.Result](t)(b.go_(t)).Precision
	if p.Interval("lag", 0.5) == nil || p.Interval("latency", 0.5) != nil || p.Stationary == nil || !p.Stationary.Holds || p.Stationary.Of != "lag" {
		t.Errorf("precision %+v", p)
	}
}

// slicedOffload hands over one slice after the other when it has ended, and one that comes behind the plan.
type slicedOffload struct{ *fakeOffload }

func (s slicedOffload) Collect(now int64, fn func(*backend.OffloadInterval)) error {
	if now < 1<<62 {
		return nil
	}
	for _, index := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20} {
		lag := 10 + index%2
		counts := make([]uint64, lag+1)
		counts[lag] = 10
		fn(&backend.OffloadInterval{Index: index, Sent: 10, Lag: backend.Buckets{Counts: counts, Min: lag, Max: lag, SumLo: uint64(10 * lag)}})
	}
	return nil
}

// What is recorded elsewhere has its precision too: twelve slices of a quarter of a second in three seconds, and what comes later is of the last.
func TestPrecisionElsewhere(t *testing.T) {
	f := &fakeOffload{stop: make(chan struct{}), begun: make(chan struct{}), books: func(int64, int64) backend.OffloadBooks {
		return backend.OffloadBooks{Next: 130, Sent: 130}
	}}
	cfg := offloadConfig(t, 100, 3*time.Second)
	res := must[*stats.Result](t)(RunOffload(context.Background(), cfg, func([]backend.OffloadConfig, *backend.ReceiverConfig) ([]backend.Offload, backend.OffloadReceiver, error) {
		return []backend.Offload{slicedOffload{f}}, nil, nil
	}))
	if res.Lag.Count != 130 || len(res.Timeline) != 3 || res.Timeline[0].Sent != 40 || res.Timeline[2].Sent != 50 {
		t.Errorf("%d lags, timeline %+v: want 130, and 40, 40 and 50 sent", res.Lag.Count, res.Timeline)
	}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		if v := res.Precision.Interval("lag", q); v == nil || v.Samples != 130 || v.LowNS > v.ValueNS || v.HighNS < v.ValueNS {
			t.Errorf("lag at %v: %+v", q, v)
		}
	}
	if s := res.Precision.Stationary; s == nil || s.First.Samples != 60 || s.Second.Samples != 70 {
		t.Errorf("stationary: %+v: want 60 samples and then 70", s)
	}
}
