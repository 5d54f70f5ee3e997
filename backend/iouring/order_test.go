package iouring

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"blast/backend"
)

// Random batches over random flows, of random lengths, given back in part: of each flow everything arrives once, whole and in order.
func TestRandomOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  backend.Config
	}{
		{"plain", backend.Config{}},
		{"small send buffer: chains", backend.Config{SendBuffer: 1}},
		{"trains", backend.Config{GSO: 8}},
		{"kernel thread", backend.Config{SQPoll: true, Batch: 16}},
		{"zero copy", backend.Config{GSO: 8, ZeroCopy: true}},
		{"everything", backend.Config{GSO: 8, ZeroCopy: true, SQPoll: true, SendBuffer: 1}},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) { randomOrder(t, c.cfg, seed) })
		}
	}
}

func randomOrder(t *testing.T, cfg backend.Config, seed uint64) {
	own(t)
	conn, to := socket(t)
	const flows, packets, payload = 5, 1500, 600
	for range flows {
		cfg.Flows = append(cfg.Flows, backend.Flow{Dst: to})
	}
	cfg.PayloadBytes = payload
	s, _ := must(t, cfg)
	defer s.Close()
	r := rand.New(rand.NewPCG(seed, 1))
	flowOf := make(map[uint16]int)
	for i, src := range s.Limits().Sources {
		flowOf[src.Port()] = i
	}
	var next, seen [flows]uint64
	var accepted, told, arrived uint64
	buf := make([]byte, 2048)
	read := func() {
		for ; arrived < told; arrived++ {
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatalf("%d of %d arrived: %v", arrived, told, err)
			}
			flow := flowOf[from.Port()]
			if got := binary.BigEndian.Uint64(buf); got != seen[flow] || n < 8 {
				t.Fatalf("flow %d: packet %d where %d was next", flow, got, seen[flow])
			}
			intact(t, buf[8:n], int(seen[flow]))
			seen[flow]++
		}
	}
	size, flow := payload, 0
	for deadline := time.Now().Add(60 * time.Second); told < packets; {
		slots := s.Reserve(1 + r.IntN(40))
		offered := slots[:min(len(slots), 1+r.IntN(40))]
		if accepted+uint64(len(offered)) > packets {
			offered = offered[:packets-accepted]
		}
		before, chosen := next, make([]int, len(offered))
		for i := range offered {
			if r.IntN(3) == 0 {
				flow = r.IntN(flows)
			}
			if r.IntN(5) == 0 {
				size = []int{8, 20, 100, 599, payload}[r.IntN(5)]
			}
			offered[i].Flow, offered[i].Len, chosen[i] = flow, size, flow
			binary.BigEndian.PutUint64(offered[i].Payload, next[flow])
			fill(offered[i].Payload[8:size], int(next[flow]))
			next[flow]++
		}
		n, err := s.Commit(len(offered))
		if err != nil || n > len(offered) {
			t.Fatal(n, err)
		}
		next = before
		for _, flow := range chosen[:n] {
			next[flow]++ // the rest comes again with the same numbers, if not on the same flow
		}
		accepted += uint64(n)
		c := s.Reap()
		told += c.Sent
		if c.Dropped > 0 || c.Refused != [backend.NumCauses]uint64{} {
			t.Fatalf("%+v", c)
		}
		read()
		if time.Now().After(deadline) {
			t.Fatalf("%d accepted and %d told of %d", accepted, told, packets)
		}
	}
	read()
}
