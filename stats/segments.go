package stats

// The segments of a packet's latency in the order of its life. Wire stands in place of Up and Down where the server's clock is not
// known to be ours, and for servers that stamp nothing.
const (
	SegmentLag      = "lag"           // planned -> the send call begins
	SegmentSendCall = "send_call"     // -> the packet scheduler has it (SOF_TIMESTAMPING_TX_SCHED)
	SegmentKernel   = "kernel"        // -> the driver, or with hardware stamps the wire, has it (TX_SOFTWARE, TX_HARDWARE)
	SegmentUp       = "up"            // -> our server has received it
	SegmentServer   = "server"        // -> our server answers
	SegmentDown     = "down"          // -> the reply is in our kernel (RX_SOFTWARE, RX_HARDWARE)
	SegmentWire     = "wire"          // driver -> reply in our kernel, without the server's own time where that is known
	SegmentQueue    = "receive_queue" // -> the receiving thread asks for it
	SegmentUser     = "user"          // -> it has it: the receive time of latency
)

// Segments says where the time of sampled packets went. The parts of each packet follow one another without a gap, so that their
// sum is its latency.
type Segments struct {
	// Every says that one packet in so many was sampled. Complete packets have all stamps and are in the histograms; Incomplete ones miss
	// some: no reply, or the kernel lost a stamp.
	Every      uint64 `json:"every"`
	Complete   uint64 `json:"complete"`
	Incomplete uint64 `json:"incomplete"`
	// Latency is that of the complete packets alone.
	Latency Histogram `json:"latency_ns"`
	// Parts are in the order of a packet's life.
	Parts []Segment `json:"parts"`
	// ResidualNS is the largest difference between a packet's latency and the sum of its parts. It is not 0 where a clock conversion
	// would make a part negative; then that part is recorded as 0.
	ResidualNS int64 `json:"residual_ns"`
	// Stamps says what made them: "software", "hardware", or "xdp" for arrivals noted by the XDP program and nothing on the way out.
	Stamps string `json:"stamps"`
	// Arrivals says what made the times at which replies came: "software", "hardware" or "xdp".
	Arrivals string `json:"arrivals,omitempty"`
	// ClockErrorNS bounds the error of converting a device's stamps to CLOCK_MONOTONIC: half of the bracket of its readings, and what its rate is
	// not known for. It has no part in ResidualNS, because what one part gains by it its neighbour loses. 0 where no stamp is a device's.
	ClockErrorNS int64 `json:"clock_error_ns,omitempty"`
	// SameClock says that the server's clock was found to be ours. Where it is not, OffsetNS is its estimated lead and OffsetErrorNS the bound of
	// that estimate (both 0 where the server stamps nothing).
	SameClock     bool  `json:"same_clock"`
	OffsetNS      int64 `json:"offset_ns"`
	OffsetErrorNS int64 `json:"offset_error_ns"`
	// Notes are stamps that this path cannot give, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Segment is one part.
type Segment struct {
	Name string    `json:"name"`
	NS   Histogram `json:"ns"`
}

// Departures compares the times at which packets really left (kernel stamps, not the send loop's clock) with the plan.
type Departures struct {
	// Source says what stamped them: "tx_software", "tx_hardware", or "xdp" for the program that sends inside the kernel.
	Source string `json:"source"`
	// Error is |gap - planned gap| between consecutive packets of one worker.
	Error Histogram `json:"error_ns"`
	// Test is the goodness-of-fit test against the plan's distribution; nil where the plan is not random or there were too few gaps.
	Test *FitTest `json:"test,omitempty"`
}

// FitTest is one goodness-of-fit test.
type FitTest struct {
	// Name is "anderson-darling"; Against says in words which distribution.
	Name      string  `json:"name"`
	Against   string  `json:"against"`
	Samples   uint64  `json:"samples"`
	Statistic float64 `json:"statistic"`
	// P is the probability of a statistic this large when the gaps do follow the plan.
	P float64 `json:"p"`
}
