// Package steer chooses source ports so that the replies of a flow arrive on the receive queue that is wanted: by computing the hash of
// the network card where that can be done, and otherwise by trying ports and watching the counters of the queues.
//
// Reading needs no privilege. Trying sends packets to the target, so it has to be one that answers and may be loaded.
package steer

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"blast/packet"
	"blast/tuning"
)

// Card is how a network card chooses the queue of a received packet.
type Card struct {
	RSS tuning.RSS
	// Fields are the letters of what is hashed for UDP packets of the address family.
	Fields string
}

// Read asks the driver of an interface. v6 chooses the address family.
func Read(d tuning.Device, iface string, v6 bool) (Card, error) {
	text, err := d.Get(iface, tuning.RSSConfig)
	if err != nil {
		return Card{}, err
	}
	h, err := tuning.ParseRSS(text)
	if err != nil {
		return Card{}, fmt.Errorf("%s: %w", iface, err)
	}
	s := tuning.UDP4Fields
	if v6 {
		s = tuning.UDP6Fields
	}
	fields, err := d.Get(iface, s)
	if errors.Is(err, errors.ErrUnsupported) {
		fields, err = "", nil
	}
	return Card{RSS: h, Fields: fields}, err
}

// Computable says that queues can be computed from ports; the error says why not, and what to do.
func (c Card) Computable() error {
	switch {
	case len(c.RSS.Table) == 0:
		return errors.New("the card tells no RSS table: queues are learnt by probing")
	case c.RSS.Function != "toeplitz":
		return fmt.Errorf("the card hashes by %s, not toeplitz: queues are learnt by probing", c.RSS.Function)
	case c.RSS.Transform != 0:
		return errors.New("the card hashes both directions alike (symmetric): queues are learnt by probing")
	case c.Fields == "":
		return errors.New("the driver does not tell what it hashes of UDP packets: queues are learnt by probing")
	case !tuning.HashesPorts(c.Fields):
		return fmt.Errorf("the card hashes UDP by addresses only (%s): ports cannot steer; blast tune apply --only hash, or more --src addresses", c.Fields)
	}
	return nil
}

// Queue is the receive queue of the replies to a flow from src to dst: the hash is over the reply's addresses and ports, so swapped.
// Only for a card that is Computable.
func (c Card) Queue(src, dst netip.AddrPort) int {
	return c.queueOf(packet.ToeplitzFlow(c.RSS.Key, dst, src))
}

// QueueByAddress is the same where ports are not hashed: all flows between two addresses share it.
func (c Card) QueueByAddress(src, dst netip.Addr) int {
	return c.queueOf(packet.ToeplitzAddrs(c.RSS.Key, dst, src))
}

func (c Card) queueOf(hash uint32) int { return int(c.RSS.Table[int(hash%uint32(len(c.RSS.Table)))]) }

// Ports are the source ports to choose from. The zero value is not valid.
type Ports struct {
	From, To uint16
	// Taken ports are left out: bound by others, or wanted for something else.
	Taken map[uint16]bool
}

// Choose finds for each wanted queue, in order, a source port whose replies land there, each port once. queueOf is Card.Queue with its
// addresses, or what Learn found; a port that it does not know is -1.
func Choose(ports Ports, want []int, queueOf func(port uint16) int) ([]uint16, error) {
	waiting := map[int][]int{} // by queue, positions in want
	for i, queue := range want {
		waiting[queue] = append(waiting[queue], i)
	}
	out, left := make([]uint16, len(want)), len(want)
	for p := int(ports.From); p <= int(ports.To) && left > 0; p++ {
		port := uint16(p)
		if port == 0 || ports.Taken[port] {
			continue
		}
		queue := queueOf(port)
		if at := waiting[queue]; len(at) > 0 {
			out[at[0]], waiting[queue] = port, at[1:]
			left--
		}
	}
	if left > 0 {
		var short []string
		for _, queue := range slices.Sorted(maps.Keys(waiting)) {
			if n := len(waiting[queue]); n > 0 {
				short = append(short, fmt.Sprintf("%d for queue %d", n, queue))
			}
		}
		return nil, fmt.Errorf("source ports %d-%d do not reach the queues: missing %s", ports.From, ports.To, strings.Join(short, ", "))
	}
	return out, nil
}

// Prober tries a port: it sends n packets from it, waits for their replies, and returns.
type Prober func(port uint16, n int) error

// Counters returns the packets received by queue.
type Counters func() (map[int]uint64, error)

// DeviceCounters reads the counters of a driver.
func DeviceCounters(d tuning.Device, iface string) Counters {
	return func() (map[int]uint64, error) {
		text, err := d.Get(iface, tuning.QueuePackets)
		if err != nil {
			return nil, err
		}
		out := map[int]uint64{}
		for word := range strings.FieldsSeq(text) {
			queue, n, _ := strings.Cut(word, "=")
			q, errQ := strconv.Atoi(queue)
			c, errN := strconv.ParseUint(n, 10, 64)
			if err := errors.Join(errQ, errN); err != nil {
				return nil, fmt.Errorf("%s queue counters: %w", iface, err)
			}
			out[q] = c
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("%s: the driver counts no packets by queue: %w", iface, errors.ErrUnsupported)
		}
		return out, nil
	}
}

// Learn finds the queue of one port by experiment: the queue that grew by at least n packets while n replies came, and by more than all
// others together; -1 when none stands out, as on a busy interface. Try again with a larger n then.
func Learn(probe Prober, counters Counters, port uint16, n int) (int, error) {
	before, err := counters()
	if err != nil {
		return -1, err
	}
	if err := probe(port, n); err != nil {
		return -1, fmt.Errorf("probe from port %d: %w", port, err)
	}
	after, err := counters()
	if err != nil {
		return -1, err
	}
	best, most, all := -1, uint64(0), uint64(0)
	for queue, now := range after {
		grown := now - before[queue]
		all += grown
		if grown > most || grown == most && queue < best {
			best, most = queue, grown
		}
	}
	if most < uint64(n) || 2*most <= all {
		return -1, nil
	}
	return best, nil
}

// Verify checks by experiment that each port lands on its queue, and returns those that do not.
func Verify(probe Prober, counters Counters, ports []uint16, want []int, n int) (wrong []uint16, err error) {
	for i, port := range ports {
		queue, err := Learn(probe, counters, port, n)
		if err != nil {
			return nil, err
		}
		if queue != want[i] {
			wrong = append(wrong, port)
		}
	}
	return wrong, nil
}
