package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// mapping is one ring mapped from a socket, before it is a producer or a consumer.
type mapping struct {
	region                    *ring.Region
	producer, consumer, flags *atomic.Uint32
	mem                       []byte // entries
}

// entryBytes of the two kinds of rings: struct xdp_desc for receive and transmit, a 64-bit address for fill and completion.
const (
	descBytes    = 16
	addressBytes = 8
)

// mapRing maps one ring. where comes from XDP_MMAP_OFFSETS: the layout is the kernel's to choose.
func mapRing(fd int, page int64, where unix.XDPRingOffset, entries, entryBytes int) (*mapping, error) {
	region, err := ring.MapFD(fd, page, int(where.Desc)+entries*entryBytes)
	if err != nil {
		return nil, err
	}
	m, err := viewRing(region, where)
	if err != nil {
		return nil, errors.Join(err, region.Close())
	}
	return m, nil
}

// viewRing finds the words of a ring in memory.
func viewRing(region *ring.Region, where unix.XDPRingOffset) (*mapping, error) {
	m := &mapping{region: region}
	for _, w := range []struct {
		at  **atomic.Uint32
		off uint64
	}{{&m.producer, where.Producer}, {&m.consumer, where.Consumer}, {&m.flags, where.Flags}} {
		var err error
		if *w.at, err = ring.Word(region.Bytes(), w.off); err != nil {
			return nil, err
		}
	}
	if where.Desc > uint64(len(region.Bytes())) {
		return nil, fmt.Errorf("ring entries at %d of %d bytes", where.Desc, len(region.Bytes()))
	}
	m.mem = region.Bytes()[where.Desc:]
	return m, nil
}

// attachTransmit gives the sender its two rings.
func (s *sender) attachTransmit(tx, cq *mapping, entries int) error {
	var errs [4]error
	s.tx, errs[0] = ring.NewProducer(tx.producer, tx.consumer, uint32(entries))
	s.txDesc, errs[1] = ring.Slice[unix.XDPDesc](tx.mem, entries)
	s.cq, errs[2] = ring.NewConsumer(cq.producer, cq.consumer, uint32(entries))
	s.cqAddr, errs[3] = ring.Slice[uint64](cq.mem, entries)
	s.txFlags = tx.flags
	return errors.Join(errs[:]...)
}

// attachReceive gives the receiver its two rings.
func (r *receiver) attachReceive(rx, fq *mapping, entries int) error {
	var errs [4]error
	r.rx, errs[0] = ring.NewConsumer(rx.producer, rx.consumer, uint32(entries))
	r.rxDesc, errs[1] = ring.Slice[unix.XDPDesc](rx.mem, entries)
	r.fq, errs[2] = ring.NewProducer(fq.producer, fq.consumer, uint32(entries))
	r.fqAddr, errs[3] = ring.Slice[uint64](fq.mem, entries)
	r.fqFlags = fq.flags
	return errors.Join(errs[:]...)
}
