package udpsock

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/clock"
)

// A device that can stamp and has not been told to is left so, and the note names the command that fits what it can.
func TestSwitchedOff(t *testing.T) {
	const all = 1 << unix.HWTSTAMP_FILTER_ALL
	for _, c := range []struct {
		why       string
		filters   uint32
		tx        int32
		off, rest string
	}{
		{"off, and can stamp all that arrives", all | 1, unix.HWTSTAMP_TX_OFF, "hwstamp_ctl -i eth9 -t 1 -r 1", "hwstamp_ctl -i eth9 -t 1 -r 1"},
		{"off, and stamps frames of the precision time protocol alone", 1<<unix.HWTSTAMP_FILTER_PTP_V2_EVENT | 1, unix.HWTSTAMP_TX_OFF, "hwstamp_ctl -i eth9 -t 1 -r 0", "cannot stamp all packets that arrive"},
		{"on", all, unix.HWTSTAMP_TX_ON, "", "hwstamp_ctl -i eth9 -t 1 -r 1"},
	} {
		info := &unix.EthtoolTsInfo{Rx_filters: c.filters}
		note := switchedOff("eth9", info, &unix.HwTstampConfig{Tx_type: c.tx})
		if (note == "") != (c.off == "") || !strings.HasSuffix(note, c.off) {
			t.Errorf("%s: note %q, want one that ends with %q", c.why, note, c.off)
		}
		if rest := noArrivals("eth9", info); !strings.HasSuffix(rest, c.rest) {
			t.Errorf("%s: %q, want one that ends with %q", c.why, rest, c.rest)
		}
	}
}

// A device's time of arrival is the third of the three in the control message, by its own clock, and stays apart from the kernel's.
func TestParseControlHardware(t *testing.T) {
	control := make([]byte, unix.CmsgSpace(48))
	binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(48)))
	binary.NativeEndian.PutUint32(control[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(control[12:], unix.SO_TIMESTAMPING)
	for i, v := range []uint64{5, 6, 0, 0, 7, 8} {
		binary.NativeEndian.PutUint64(control[unix.CmsgLen(0)+8*i:], v)
	}
	if stamp, hardware, segment := ParseControl(control); stamp != 5e9+6 || hardware != 7e9+8 || segment != 0 {
		t.Errorf("%d, %d, %d: want 5 s 6 ns by software, 7 s 8 ns by hardware, no segments", stamp, hardware, segment)
	}
}

// Over loopback there is no device, and nothing is said of one; sockets to one peer are one question.
func TestKernelNoDevice(t *testing.T) {
	a := newAsker(t, 3, true)
	if name, others := leavesBy(a.fds); name != "lo" || others {
		t.Errorf("leaves by %q, others %v: want lo alone", name, others)
	}
	if a.stamps.device != nil || a.stamps.ArrivalClock() != nil || a.stamps.ClockError() != 0 || a.stamps.kinds.Has(backend.StampHardware) {
		t.Errorf("device %v, kinds %b: want none", a.stamps.device, a.stamps.kinds)
	}
}

// With a device's clock a stamp is converted by that clock, and is told from the software's by what the message holds.
func TestStampByDevice(t *testing.T) {
	var d clock.Device
	d.Add(clock.Reading{Device: 37e9, At: 1e9, Error: 10})
	d.Add(clock.Reading{Device: 38e9, At: 2e9, Error: 10})
	s := &Stamps{device: &d, arrivals: true}
	if at := s.monotonic(backend.StampHardware, 0, 38e9+500); at != 2e9+500 {
		t.Errorf("converted to %d, want 500 ns after 2 s", at)
	}
	if s.ArrivalClock() != &d || s.ClockError() == 0 || s.receiveFlags()&unix.SOF_TIMESTAMPING_RX_HARDWARE == 0 {
		t.Errorf("arrivals by %v, within %d ns, flags %x", s.ArrivalClock(), s.ClockError(), s.receiveFlags())
	}
	if flags, each := stampFlags(backend.StampKinds(7)); each != 3 || flags&unix.SOF_TIMESTAMPING_TX_HARDWARE == 0 {
		t.Errorf("%d stamps a packet, flags %x", each, flags)
	}
}
