package packet

import "encoding/binary"

// The payload stamp is how a packet tells its plan to whoever receives it. All fields are big endian.
//
//	full, 48 bytes                                  report, bytes 48-63 where the payload has room
//	 0  magic 0xB1A5                                48  distinct packets of this flow received by the server, 0 = no report
//	 2  version (1)                                 56  window: bit k set = flow packet (this one - k) was received, 0 = unknown
//	 3  epoch of the run (warm-up, round, ...)
//	 4  worker                                      compact, 16 bytes, for minimum-size packets
//	 6  stride: flows of this worker, 0 = unknown    0  magic 0xB2
//	 8  seq: the worker's own slot number            1  worker (low 8 bits)
//	16  planned ns, CLOCK_MONOTONIC                  2  seq, 48 bits
//	24  sent ns                                      8  planned ns, low 40 bits (wraps in 18 minutes)
//	32  server receive ns, server's clock           13  lag in units of 64 ns, 24 bits, saturating at 1.07 s
//	40  server send ns
const (
	StampBytes   = 48
	ReportBytes  = 16
	CompactBytes = 16

	stampMagic   = 0xB1A5
	stampVersion = 1
	compactMagic = 0xB2
	compactWrap  = 1 << 40
	compactUnit  = 64
	compactLag   = 1<<24 - 1
)

// Stamp is the decoded form of either stamp.
type Stamp struct {
	// Epoch tells the phases of a run apart, so that a straggler of the last one is not counted. Full form only; 0 in the compact one.
	Epoch  uint8
	Worker uint16
	// Stride is the number of flows that the worker's slots go round; seq/Stride counts within a flow. 0 = unknown.
	Stride uint16
	// Seq is the worker's own slot number.
	Seq uint64
	// Planned and Sent are ns of the sender's CLOCK_MONOTONIC.
	Planned, Sent int64
	// ServerReceived and ServerSent are ns of the server's clock, 0 where no server filled them.
	ServerReceived, ServerSent int64
	// ServerCount and ServerWindow are the server's report on this flow; HasReport tells whether a server has filled it in.
	ServerCount, ServerWindow uint64
	HasReport                 bool
	// Compact tells which form it was.
	Compact bool
}

// The report counts within a flow: packet n of it is the one with seq/stride = n. A server fills the window only into replies to
// the newest packet of the flow, so bit 0 is then the packet replied to and always set; a reply to a packet that came late, came
// twice, or has stride 0, carries the count alone.

// PutStamp writes the sender's part of the full stamp into b, which has at least StampBytes, and clears the server's part.
func PutStamp(b []byte, s *Stamp) {
	_ = b[StampBytes-1]
	binary.BigEndian.PutUint64(b, stampMagic<<48|stampVersion<<40|uint64(s.Epoch)<<32|uint64(s.Worker)<<16|uint64(s.Stride))
	binary.BigEndian.PutUint64(b[8:], s.Seq)
	binary.BigEndian.PutUint64(b[16:], uint64(s.Planned))
	binary.BigEndian.PutUint64(b[24:], uint64(s.Sent))
	binary.BigEndian.PutUint64(b[32:], 0)
	binary.BigEndian.PutUint64(b[40:], 0)
	if len(b) >= StampBytes+ReportBytes {
		binary.BigEndian.PutUint64(b[48:], 0)
		binary.BigEndian.PutUint64(b[56:], 0)
	}
}

// PutCompact writes the compact stamp into b, which has at least CompactBytes.
func PutCompact(b []byte, s *Stamp) {
	_ = b[CompactBytes-1]
	lag := min(max(s.Sent-s.Planned, 0)/compactUnit, compactLag)
	binary.BigEndian.PutUint64(b, compactMagic<<56|uint64(s.Worker&0xff)<<48|s.Seq&(1<<48-1))
	binary.BigEndian.PutUint64(b[8:], uint64(s.Planned)<<24|uint64(lag))
}

// ParseStamp reads either form from a payload. now is the present time in ns of the sender's clock: the compact form's truncated
// time is the one nearest to it. It reports false when the payload carries no stamp.
func ParseStamp(b []byte, now int64, s *Stamp) bool {
	if len(b) < CompactBytes {
		return false
	}
	head := binary.BigEndian.Uint64(b)
	if head>>56 == compactMagic {
		times := binary.BigEndian.Uint64(b[8:])
		planned := now&^(compactWrap-1) | int64(times>>24)
		switch {
		case planned-now > compactWrap/2:
			planned -= compactWrap
		case now-planned > compactWrap/2:
			planned += compactWrap
		}
		*s = Stamp{Worker: uint16(head >> 48 & 0xff), Seq: head & (1<<48 - 1), Planned: planned,
			Sent: planned + int64(times&compactLag)*compactUnit, Compact: true}
		return true
	}
	if !hasFull(b) {
		return false
	}
	s.Epoch, s.Worker, s.Stride = uint8(head>>32), uint16(head>>16), uint16(head)
	s.Seq = binary.BigEndian.Uint64(b[8:])
	s.Planned = int64(binary.BigEndian.Uint64(b[16:]))
	s.Sent = int64(binary.BigEndian.Uint64(b[24:]))
	s.ServerReceived = int64(binary.BigEndian.Uint64(b[32:]))
	s.ServerSent = int64(binary.BigEndian.Uint64(b[40:]))
	s.Compact = false
	s.ServerCount, s.ServerWindow = 0, 0
	if len(b) >= StampBytes+ReportBytes {
		s.ServerCount, s.ServerWindow = binary.BigEndian.Uint64(b[48:]), binary.BigEndian.Uint64(b[56:])
	}
	s.HasReport = s.ServerCount != 0
	return true
}

// hasFull reports whether a payload carries a full stamp of our version.
func hasFull(b []byte) bool {
	return len(b) >= StampBytes && binary.BigEndian.Uint64(b)>>40 == stampMagic<<8|stampVersion
}

// BeginsStamp reports whether a payload begins with the magic of either form. One that does, and that ParseStamp refuses, was
// cut short or is of another version.
func BeginsStamp(b []byte) bool {
	return len(b) > 0 && b[0] == compactMagic || len(b) > 1 && binary.BigEndian.Uint16(b) == stampMagic
}

// PutServer writes a server's part into a payload that carries a full stamp: receive and send time in ns of its own clock, and
// the flow's count and window where there is room. It does nothing to a compact stamp or to a payload without one.
func PutServer(b []byte, received, sent int64, count, window uint64) {
	if !hasFull(b) {
		return
	}
	binary.BigEndian.PutUint64(b[32:], uint64(received))
	binary.BigEndian.PutUint64(b[40:], uint64(sent))
	if len(b) >= StampBytes+ReportBytes {
		binary.BigEndian.PutUint64(b[48:], count)
		binary.BigEndian.PutUint64(b[56:], window)
	}
}

// PutServerSent writes the server's send time alone, for a server that reads its clock again just before it sends.
func PutServerSent(b []byte, sent int64) {
	if !hasFull(b) {
		return
	}
	binary.BigEndian.PutUint64(b[40:], uint64(sent))
}
