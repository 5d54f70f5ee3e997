package stats

import (
	"fmt"
	"math"
)

// Little is Little's law held against a run: the mean number of packets in flight is rate x mean latency, whatever the load and the
// target. The three are measured apart, so where they disagree one of them is wrong.
type Little struct {
	// InFlight is the mean over the measured time, from Samples looks at random moments; InFlightError is its standard error. A packet is
	// in flight from its planned time to its reply or timeout; in a closed run, a client is from its send.
	InFlight      float64 `json:"in_flight"`
	InFlightError float64 `json:"in_flight_error"`
	Samples       uint64  `json:"samples"`
	// RatePPS is the rate of packets sent, LatencyNS their mean latency, where what got no reply in time counts as the timeout.
	RatePPS   float64 `json:"rate_pps"`
	LatencyNS int64   `json:"latency_ns"`
	// Off is InFlight / (RatePPS x LatencyNS) - 1.
	Off float64 `json:"off"`
	// Suspect is the one of the three that is probably wrong, with the reason, where they disagree by more than LittleLimit; "" where they agree.
	Suspect string `json:"suspect,omitempty"`
	// Unchecked says why nothing can be said; "" otherwise.
	Unchecked string `json:"unchecked,omitempty"`
}

// LittleLimit is how far the two sides may be apart.
const LittleLimit = 0.05

const (
	// littleFewest is the least number of packets seen in flight, over all samples, that says something.
	littleFewest = 400
	// littleSkewNS is how far a sample and the counts it reads may be apart in time: a reply counts when the Poll that brought it ends, not from
	// its time of receipt on, and without a plan a packet from the end of its send call.
	littleSkewNS = 20_000
)

// Product is rate x mean latency: packets.
func (l *Little) Product() float64 { return l.RatePPS * float64(l.LatencyNS) / 1e9 }

// Judge fills Off and Suspect from the rest and from r, whose own figures tell which of the three to doubt.
func (l *Little) Judge(r *Result) {
	l.Off, l.Suspect = 0, ""
	product := l.Product()
	if product > 0 {
		l.Off = l.InFlight/product - 1
	}
	if l.Unchecked != "" {
		return
	}
	if seen := max(product, l.InFlight) * float64(l.Samples); seen < littleFewest {
		l.Unchecked = fmt.Sprintf("%.3g packets in flight, looked at %d times, are too few to tell", max(product, l.InFlight), l.Samples)
		return
	}
	apart, skew := math.Abs(l.InFlight-product), l.RatePPS*littleSkewNS/1e9
	switch {
	case apart <= LittleLimit*max(product, l.InFlight):
		return
	case apart <= 4*l.InFlightError:
		l.Unchecked = fmt.Sprintf("%.4g packets in flight by %d looks that scatter too much (standard error %.2g) against rate x latency = %.4g", l.InFlight, l.Samples,
			l.InFlightError, product)
		return
	case apart <= skew:
		l.Unchecked = fmt.Sprintf("%.4g packets in flight against rate x latency = %.4g: at this rate a look is only exact to %.3g packets", l.InFlight, product, skew)
		return
	}
	sent := float64(r.Ledger.Sent)
	missing := sent - float64(r.Latency.Count) - float64(r.Ledger.Lost) - float64(r.Ledger.InFlight)
	switch share := r.Rate.AchievedPPS / r.Rate.TargetPPS; {
	case r.Config.Paced && math.Abs(share-1) > 0.01:
		l.Suspect = fmt.Sprintf("the rate: %s of the plan was sent, and what was not sent waited too", FormatPercent(share))
	case r.Ledger.SelfLost > 0 || math.Abs(missing) > 0.01*sent || r.Latency.Refused > 0:
		l.Suspect = fmt.Sprintf("the latency: %.0f packets have no sample, and the generator dropped %d replies itself", max(missing, 0), r.Ledger.SelfLost)
	default:
		l.Suspect = "the count in flight: rate and latency show no fault of their own, so replies waited before they were counted"
	}
}

// mergeLittles adds the shards up: packets in flight and rates add, latencies weigh by rate.
func mergeLittles(whole *Result, shards []*Result) *Little {
	sum := &Little{}
	var variance, product float64
	for _, s := range shards {
		l := s.Little
		if l == nil {
			return nil
		}
		sum.InFlight += l.InFlight
		variance += l.InFlightError * l.InFlightError
		sum.RatePPS += l.RatePPS
		sum.Samples += l.Samples
		product += l.Product()
		if sum.Unchecked == "" {
			sum.Unchecked = l.Unchecked
		}
	}
	sum.InFlightError = math.Sqrt(variance)
	if sum.RatePPS > 0 {
		sum.LatencyNS = int64(product / sum.RatePPS * 1e9)
	}
	sum.Judge(whole)
	return sum
}
