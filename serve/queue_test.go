package serve

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// offered admits rate requests a second, evenly, over length, and returns their latencies in order.
func offered(q *Queue, rate int64, length, service time.Duration) []int64 {
	var out []int64
	for i := int64(0); i*int64(time.Second)/rate < int64(length); i++ {
		at := i * int64(time.Second) / rate
		_, depart := q.Admit(at, int64(service))
		out = append(out, depart-at)
	}
	return out
}

// The open load of the article, against the closed forms: 16 servers of 5 ms, 1000/s for 12 s, frozen from 5 s to 7 s.
func TestQueueIsTheClosedForm(t *testing.T) {
	const service, slow = 5 * time.Millisecond, 100 * time.Millisecond
	q := NewQueue(16, []Stall{{5 * time.Second, 7 * time.Second}})
	got := offered(q, 1000, 12*time.Second, service)
	if len(got) != 12_000 {
		t.Fatalf("%d requests: want 12000", len(got))
	}
	lambda, mu, d := 1000.0, 16/service.Seconds(), 2.0
	want := lambda*d + lambda*(lambda*d-mu*(slow-service).Seconds())/(mu-lambda) + lambda*service.Seconds()
	over := 0
	for i, v := range got {
		if v > int64(slow) {
			over++
		}
		// Each request of the stall and of the time after it, by the formulas; a batch of 16 leaves at once, so within one service time.
		at, latency := float64(i)/lambda, service.Seconds()
		switch tau, u := at-5, at-7; {
		case tau >= 0 && u < 0:
			latency = d - tau + lambda*tau/mu + service.Seconds()
		case u >= 0 && u < lambda*d/(mu-lambda):
			latency = (lambda*d-(mu-lambda)*u)/mu + service.Seconds()
		case tau > -service.Seconds()+1e-9 && tau < 0:
			latency += d
		}
		if off := float64(v)/1e9 - latency; math.Abs(off) > service.Seconds()+1e-9 {
			t.Fatalf("request %d at %.3f s: latency %v, computed %.4f s", i, at, time.Duration(v), latency)
		}
	}
	if math.Abs(float64(over)-want) > 0.01*want {
		t.Errorf("%d slow requests: computed %.0f", over, want)
	}
}

// What arrives, starts and leaves around a stall: by hand, one server of 10 ms, frozen from 100 ms to 150 ms.
func TestQueueAroundAStall(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		why           string
		at            []int64
		start, depart int64 // of the last one, ms
	}{
		{"idle: served at once", []int64{0}, 0, 10},
		{"busy: waits for the one before", []int64{0, 4}, 10, 20},
		{"done just as the stall begins", []int64{90}, 90, 100},
		{"caught in service: resumes where it was", []int64{95}, 95, 155},
		{"arrives while frozen: starts at the end", []int64{120}, 150, 160},
		{"queued behind one that was caught", []int64{95, 120}, 155, 165},
		{"arrives at the very end", []int64{150}, 150, 160},
		{"long after", []int64{95, 120, 300}, 300, 310},
	} {
		q := NewQueue(1, []Stall{{100 * time.Millisecond, 150 * time.Millisecond}})
		var start, depart int64
		for _, at := range c.at {
			start, depart = q.Admit(at*ms, 10*ms)
		}
		if start != c.start*ms || depart != c.depart*ms {
			t.Errorf("%s: start %v, depart %v: want %d ms and %d ms", c.why, time.Duration(start), time.Duration(depart), c.start, c.depart)
		}
	}
}

// slowQueue is FIFO by definition: each request takes the server that is free first, found by looking at all of them.
func slowQueue(arrivals, services []int64, servers int) []int64 {
	free := make([]int64, servers)
	var out []int64
	for i, at := range arrivals {
		first := 0
		for k := range free {
			if free[k] < free[first] {
				first = k
			}
		}
		free[first] = max(at, free[first]) + services[i]
		out = append(out, free[first])
	}
	return out
}

// Any load: the heap agrees with the definition, nothing starts or leaves inside a stall, and a stall only ever delays.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(1, 9).Draw(t, "servers")
		n := rapid.IntRange(1, 80).Draw(t, "requests")
		from := rapid.Int64Range(0, 500).Draw(t, "from")
		stall := Stall{time.Duration(from), time.Duration(from + rapid.Int64Range(1, 500).Draw(t, "length"))}
		plain, frozen := NewQueue(servers, nil), NewQueue(servers, []Stall{stall})
		var arrivals, services []int64
		at := int64(0)
		for range n {
			at += rapid.Int64Range(0, 40).Draw(t, "gap")
			arrivals, services = append(arrivals, at), append(services, rapid.Int64Range(0, 60).Draw(t, "service"))
		}
		want := slowQueue(arrivals, services, servers)
		for i, at := range arrivals {
			start, depart := plain.Admit(at, services[i])
			if depart != want[i] || start+services[i] != depart {
				t.Fatalf("request %d: start %d, depart %d: want depart %d", i, start, depart, want[i])
			}
			start, later := frozen.Admit(at, services[i])
			if later < depart || later < at || later > depart+int64(stall.To-stall.From) {
				t.Fatalf("request %d: departs at %d with a stall of %v, at %d without", i, later, stall, depart)
			}
			for _, v := range []int64{start, later} {
				if v > int64(stall.From) && v < int64(stall.To) && v != at {
					t.Fatalf("request %d: start %d, depart %d, inside the stall %v", i, start, later, stall)
				}
			}
		}
	})
}

// The faults of a seed are the same whoever asks, as frequent as asked for, and others under another seed.
func TestFaultsBySeed(t *testing.T) {
	f := Faults{Drop: 0.01, DropReply: 0.02, Reorder: 0.03, Duplicate: 0.04, Delay: 0.05, DelayBy: time.Second, Seed: 7}
	other := f
	other.Seed = 8
	const n = 200_000
	var counts [numFaults]int
	same := 0
	for seq := range uint64(n) {
		a := f.At(3, seq)
		counts[a]++
		if a != f.At(3, seq) {
			t.Fatal("two answers for one request")
		}
		if a != FaultNone && a == other.At(3, seq) {
			same++
		}
	}
	for i, share := range f.shares() {
		mean := share * n
		if off := math.Abs(float64(counts[i+1]) - mean); off > 5*math.Sqrt(mean) {
			t.Errorf("fault %d: %d times, want %.0f within five standard deviations", i+1, counts[i+1], mean)
		}
	}
	if same > n/100 {
		t.Errorf("%d faults are the same under two seeds", same)
	}
}

// Stalls, shares and faults that make no sense are refused with what would make sense.
func TestQueueRefusesBadInput(t *testing.T) {
	for _, text := range []string{"", "5s", "7s..5s", "5s..5s", "-1s..2s", "5..7", "a..b"} {
		if s, err := ParseStall(text); err == nil {
			t.Errorf("stall %q was read as %v", text, s)
		}
	}
	if s, err := ParseStall("5s..7s"); err != nil || s != (Stall{5 * time.Second, 7 * time.Second}) {
		t.Errorf("stall 5s..7s: %v, %v", s, err)
	}
	for _, text := range []string{"", "%", "101%", "-1%", "2", "NaN", "half"} {
		if v, err := ParseShare(text); err == nil {
			t.Errorf("share %q was read as %v", text, v)
		}
	}
	for text, want := range map[string]float64{"1%": 0.01, "0.1%": 0.001, "0.25": 0.25, "100%": 1, "0": 0} {
		if v, err := ParseShare(text); err != nil || math.Abs(v-want) > 1e-15 {
			t.Errorf("share %q: %v, %v; want %v", text, v, err, want)
		}
	}
	for _, f := range []Faults{{Drop: 0.6, Reorder: 0.6}, {Drop: -1}, {Drop: math.NaN()}, {Delay: 0.1}} {
		if f.check() == nil {
			t.Errorf("faults %+v were taken", f)
		}
	}
	if _, err := ordered([]Stall{{5, 7}, {6, 9}}); err == nil {
		t.Error("overlapping stalls were taken")
	}
}
