package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"blast/pace"
	"blast/stats"
)

const (
	// stampRate is the number of packets a second that --stamps auto follows.
	stampRate = 1000
	// stampLeast is the least N of its 1/N: packets with stamps are to stay few among the others, whose figures they must not colour.
	stampLeast = 16
	// stampUnpaced is its N where no plan tells the rate, stampClosed where clients that wait for their replies keep it lower.
	stampUnpaced, stampClosed = 512, 64
)

// stampFlags are the flags of blast udp about kernel stamps.
type stampFlags struct {
	stamps string
}

func (f *stampFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.stamps, "stamps", "auto", "follow one packet in N by kernel stamps, which tell where the time went and when packets really left: "+
		"auto (about 1,000 a second where the backend can), off, or 1/N")
}

// planStamps settles how many packets are followed.
func (f *udpFlags) planStamps(p *udpPlan, _ []netip.AddrPort) error {
	every, auto, err := parseStamps(f.stamps)
	switch {
	case err != nil || every == 0 && !auto:
		return err
	case auto && !p.entry.Stamps || auto && f.gso > 1:
		return nil
	case p.offload != nil || !p.entry.Stamps:
		return fmt.Errorf("stamps %s: %s has none", f.stamps, p.entry.Name)
	case f.gso > 1:
		return fmt.Errorf("stamps %s: a train has one stamp for all its packets; leave --gso out", f.stamps)
	}
	if auto {
		if every = stampUnpaced; f.model == stats.ModelClosed {
			every = stampClosed
		}
		if _, unpaced := p.engine.Schedule.(pace.Unpaced); !unpaced {
			every = max(stampLeast, uint64(p.engine.Schedule.MeanPPS()/stampRate))
		}
	}
	p.engine.StampEvery, p.engine.StampSeed = every, f.seed
	return nil
}

// parseStamps reads the value of --stamps; every is 0 for off and auto.
func parseStamps(text string) (every uint64, auto bool, err error) {
	switch text {
	case "auto":
		return 0, true, nil
	case "off":
		return 0, false, nil
	}
	n, ok := strings.CutPrefix(text, "1/")
	if ok {
		every, err = strconv.ParseUint(n, 10, 32)
	}
	if !ok || err != nil || every == 0 {
		return 0, false, errors.New("stamps " + strconv.Quote(text) + ": want auto, off, or 1/N such as 1/100 (one packet in a hundred)")
	}
	return every, false, nil
}
