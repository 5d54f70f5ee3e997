package engine

import "blast/packet"

// Source says what to send and how to know its reply. One Source serves one worker: Fill runs on the sending thread, Match on the
// receiving one. Both are called per packet and obey the rules of the hot loop.
type Source interface {
	// Fill writes the payload of the slot that st describes into buf and returns its length.
	Fill(st *packet.Stamp, flow int, buf []byte) int
	// Match finds the slot that a payload received at now (ns of CLOCK_MONOTONIC) replies to, and fills Seq, Planned, Sent and the
	// server's part of st. It reports false for what is no reply to this worker.
	Match(payload []byte, now int64, st *packet.Stamp) bool
}

// Stamped is the Source of our own stamp: the payload carries its plan there and back.
type Stamped struct {
	// PayloadBytes is the length of every payload but for Size; bytes behind the stamp are whatever the backend's memory holds (zero at first).
	PayloadBytes int
	// Worker and Epoch are checked in replies.
	Worker uint16
	Epoch  uint8
	// Size, if set, is the payload length of a slot, for schedules that fix it.
	Size func(seq uint64) int
}

// Compact reports whether payloads of n bytes carry the compact form.
func Compact(n int) bool { return n < packet.StampBytes }

// Fill writes the full stamp, or the compact one where the full does not fit, or nothing where neither does.
func (s *Stamped) Fill(st *packet.Stamp, _ int, buf []byte) int {
	n := s.PayloadBytes
	if s.Size != nil {
		n = s.Size(st.Seq)
	}
	switch {
	case n >= packet.StampBytes:
		packet.PutStamp(buf[:n], st)
	case n >= packet.CompactBytes:
		packet.PutCompact(buf[:n], st)
	}
	return n
}

// Match reads either form.
func (s *Stamped) Match(payload []byte, now int64, st *packet.Stamp) bool {
	if !packet.ParseStamp(payload, now, st) {
		return false
	}
	if st.Compact {
		return st.Worker == s.Worker&0xff
	}
	return st.Worker == s.Worker && st.Epoch == s.Epoch
}
