package vm

import (
	"os"
	"strings"
	"testing"

	"blast/backend/backendtest"
	"blast/backend/mmsg"
	"blast/tuning"
)

// testInside is what runs in the guest.
func testInside(t *testing.T) {
	names := strings.Split(os.Getenv("BLAST_NIC_PAIR"), ",")
	if len(names) != 2 {
		t.Fatalf("cards %q", names)
	}
	t.Run("cards", func(t *testing.T) { testCards(t, names) })
	t.Run("tune", func(t *testing.T) { testTune(t, names) })
	t.Run("tune killed", func(t *testing.T) { testTuneKilled(t, names[1]) })
	pair := cardPair(t, names)
	t.Run("steer", func(t *testing.T) { testSteer(t, pair) })
	t.Run("timestamps", func(t *testing.T) { testTimestamps(t, pair) })
	t.Run("stamps of cards", func(t *testing.T) { testHardwareStamps(t, pair) })
	t.Run("speed", func(t *testing.T) { testSpeed(t, pair) })
	t.Run("in-kernel engine", func(t *testing.T) { testEngine(t, pair) })
	t.Run("conformance of sendmmsg", func(t *testing.T) {
		backendtest.Run(t, backendtest.OnPair(backendtest.Harness{Open: mmsg.Open, Sockets: true}, pair))
	})
	t.Run("conformance of AF_XDP", func(t *testing.T) { testConformance(t, pair) })
}

// testCards: the guest is the machine that it is meant to be, and the inventory sees it so.
func testCards(t *testing.T, names []string) {
	for node, name := range names {
		inv, err := tuning.Reader{}.Inventory(name)
		if err != nil {
			t.Fatal(err)
		}
		n := inv.NIC
		if n.Driver != "igb" || n.Node != node || n.Virtual || n.RXQueues != 4 || n.TXQueues != 4 {
			t.Errorf("%s: driver %s, node %d, virtual %t, %d and %d queues; want igb, node %d, 4 and 4", name, n.Driver, n.Node, n.Virtual, n.RXQueues, n.TXQueues, node)
		}
		receiving := map[int]bool{}
		for _, q := range n.IRQs {
			t.Logf("%s: %+v", name, q)
			if q.Queue >= 0 && !q.TXOnly {
				receiving[q.Queue] = true
			}
		}
		if len(receiving) != 4 {
			t.Errorf("%s: interrupts for the queues %v", name, receiving)
		}
		if len(inv.CPUs) != 4 {
			t.Errorf("%d CPUs", len(inv.CPUs))
		}
		for _, c := range inv.CPUs {
			if c.Node != c.ID/2 {
				t.Errorf("CPU %d is on node %d", c.ID, c.Node)
			}
		}
	}
}
