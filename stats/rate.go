package stats

import "time"

// Bytes around a UDP payload. A preamble with start-of-frame delimiter (8) and the gap between frames (12) take the time of
// 20 bytes on Ethernet; a frame without them is 14 bytes of header, the packet, 4 of FCS, and at least 64 (IEEE 802.3).
const (
	headersIPv4  = 20 + 8
	headersIPv6  = 40 + 8
	headersL2    = 14 + 4
	frameMin     = 64
	preambleGap  = 8 + 12
	bitsPerByte  = 8
	nsPerSecondF = float64(time.Second)
)

// Traffic adds up the bytes of sent packets at the four layers that bit rates are quoted for. Packets that are fragmented
// count once: their further headers are not known here.
type Traffic struct {
	Packets, Payload, IP, L2, L1 uint64
}

// Add counts n packets of payloadBytes each, over IPv6 or IPv4.
func (t *Traffic) Add(payloadBytes int, ipv6 bool, n uint64) {
	ip := uint64(payloadBytes) + headersIPv4
	if ipv6 {
		ip = uint64(payloadBytes) + headersIPv6
	}
	l2 := max(ip+headersL2, frameMin)
	t.Packets += n
	t.Payload += uint64(payloadBytes) * n
	t.IP += ip * n
	t.L2 += l2 * n
	t.L1 += (l2 + preambleGap) * n
}

// RateOf makes rates of counts over elapsed, the measured time. targetPPS is the mean rate of the plan over that time, 0 for
// no plan. Nothing is divided by zero: no time, no rates.
func RateOf(targetPPS float64, sent Traffic, replied uint64, elapsed time.Duration) Rate {
	r := Rate{TargetPPS: targetPPS, ElapsedNS: int64(elapsed)}
	if elapsed <= 0 {
		return r
	}
	per := func(n uint64) float64 { return float64(n) * nsPerSecondF / float64(elapsed) }
	r.AchievedPPS, r.RepliedPPS = per(sent.Packets), per(replied)
	r.L1BPS, r.L2BPS = per(sent.L1)*bitsPerByte, per(sent.L2)*bitsPerByte
	r.IPBPS, r.PayloadBPS = per(sent.IP)*bitsPerByte, per(sent.Payload)*bitsPerByte
	return r
}
