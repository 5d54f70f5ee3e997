package calib

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"blast/backend"
	"blast/stats"
	"blast/verdict"
)

// machine is a host in a test's own time: a packet takes cost ns of a worker, a trial takes its length and overhead.
type machine struct {
	t        time.Time
	overhead time.Duration
	cost     float64 // ns a packet
	noise    float64 // cost varies by so much from trial to trial, as a share
	unlucky  func(trial int) bool
	cap      uint64 // lag is above the limit beyond this rate, whatever the duty; 0 = none
	rand     *rand.Rand
	trials   int
	fail     error
}

func newMachine(costNS float64) *machine {
	return &machine{t: time.Unix(1e9, 0), overhead: 30 * time.Millisecond, cost: costNS, rand: rand.New(rand.NewPCG(1, 2))}
}

func (m *machine) now() time.Time { return m.t }

func (m *machine) trial(pps uint64, length time.Duration) (outcome, error) {
	m.trials++
	m.t = m.t.Add(length + m.overhead)
	if m.fail != nil {
		return outcome{}, m.fail
	}
	cost := m.cost * (1 + m.noise*(2*m.rand.Float64()-1))
	o := outcome{target: pps, duty: min(float64(pps)*cost/1e9, 1), lagP99: 10_000, lagP999: 100_000, mode: "fake"}
	o.rate = stats.Rate{AchievedPPS: min(float64(pps), 1e9/cost)}
	if pps == 0 {
		o.duty, o.rate.AchievedPPS, o.valid = 1, 1e9/cost, true
		return o, nil
	}
	add := func(bad bool, code string) {
		if bad {
			o.reasons = append(o.reasons, stats.Reason{Code: code, Detail: "made up"})
		}
	}
	late := o.duty >= 1 || m.cap > 0 && pps > m.cap || m.unlucky != nil && m.unlucky(m.trials)
	if late {
		o.lagP999 = 3_000_000
	}
	add(o.rate.AchievedPPS < 0.99*float64(pps), verdict.CodeRate)
	add(late, verdict.CodeLag)
	add(o.duty > dutyLimit, verdict.CodeDuty)
	o.valid = o.reasons == nil
	return o, nil
}

func (m *machine) close() (*Sink, error) {
	return &Sink{Sent: 100, Received: 90, Dropped: 10, OwnCPU: true}, nil
}

// search of a row that has share.
func (m *machine) search(share time.Duration) *search {
	return &search{
		trial: m.trial, now: m.now, deadline: m.t.Add(share), length: trialLength(share), rounds: defaultRounds, report: func(string, float64) {},
	}
}

// calibrator over the machine; the cost of a packet is by backend.
func (m *machine) calibrator(cfg Config, cost map[string]float64) *calibrator {
	cfg.CPUs = []int{0, 1}
	return &calibrator{Config: cfg.withDefaults(), now: m.now, open: func(_ context.Context, k cell) (rig, error) {
		c, ok := cost[pathName(k.Entry.Name, k.gso(), 1)]
		if !ok {
			return nil, errors.New("no such device")
		}
		own := *m
		m = &own
		m.cost = c / float64(k.workers)
		return m, nil
	}}
}

func entry(name string, probe error) backend.Entry {
	return backend.Entry{Name: name, Probe: func() error { return probe }}
}

var elsewhere = netip.MustParseAddrPort("10.0.0.2:9000")
