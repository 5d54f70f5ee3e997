package stats

// Live is a run in progress, as far as all of its threads have handed over what they did.
type Live struct {
	// Result is the account so far, from the start of the measured part: of Rate the packets per second and the time, Ledger, Timeline,
	// Workers, and the figures of Lag, Latency and Service without their buckets. Lost are the packets without a reply whose timeout has
	// passed, fewer again when a late reply comes; InFlight are all others without one. What only the end can tell is left zero, and so
	// is what the caller of the engine adds.
	Result Result
	// Lag, Latency and Service are those of Result in full.
	Lag, Latency, Service *Hist
	// Last is the interval that was handed over last. Its Steal is not known yet.
	Last Second
	// LastNS is the length of that interval.
	LastNS int64
}
