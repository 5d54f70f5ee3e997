package stats

import (
	"encoding/json"
	"slices"
	"time"
)

// ResultSchema names the shape of Result in JSON. Readers refuse any other.
const ResultSchema = "blast.result/1"

// TimelineMax bounds the entries of a timeline; longer runs get longer intervals.
const TimelineMax = 3600

// Result is everything a run has to say. In JSON, durations are integer ns in fields ending in _ns, rates end in _pps or
// _bps, and no number is ever NaN, infinite or null.
type Result struct {
	Schema  string    `json:"schema"`
	Started time.Time `json:"started"`
	// RunID is shared by the shards of one run, so that report merges only what belongs together.
	RunID string `json:"run_id"`
	// Shard is this result's place among the shards of the run, from 0; Shards their number (1 = whole).
	Shard   int      `json:"shard"`
	Shards  int      `json:"shards"`
	Command []string `json:"command"`
	Config  Config   `json:"config"`
	Host    Host     `json:"host"`
	Backend Backend  `json:"backend"`
	Verdict Verdict  `json:"verdict"`
	// Interrupted says why the run ended before its plan did, such as "interrupt"; empty for a whole run.
	Interrupted string    `json:"interrupted,omitempty"`
	Rate        Rate      `json:"rate"`
	Ledger      Ledger    `json:"ledger"`
	Events      Events    `json:"events"`
	Lag         Histogram `json:"lag_ns"`
	Latency     Histogram `json:"latency_ns"`
	Service     Histogram `json:"service_ns"`
	Server      Histogram `json:"server_ns"`
	Gap         Histogram `json:"gap_ns"`
	// Corrected is an estimate from a closed run: what clients that send at a fixed interval, replies or not, would have seen. See
	// Hist.RecordCorrected. nil where it was not asked for.
	Corrected *Histogram `json:"corrected_ns,omitempty"`
	// Little holds the packets in flight against rate x mean latency; nil in oneway mode.
	Little *Little `json:"little,omitempty"`
	// Segments says where the time of sampled packets went; nil without kernel stamps.
	Segments *Segments `json:"segments,omitempty"`
	// Departures compares the times at which packets left with the plan; nil where nothing but the send loop saw them leave.
	Departures *Departures `json:"departures,omitempty"`
	// Precision says how far the figures can be trusted as statistics; nil in merged results and in those of older versions.
	Precision *Precision `json:"precision,omitempty"`
	// Timeline has an entry a second, or fewer longer ones in long runs; see Second.
	Timeline []Second  `json:"timeline"`
	Workers  []Worker  `json:"workers"`
	Counters []Counter `json:"counters"`
	Rounds   []Result  `json:"rounds,omitempty"`
	// Spreads are the figures of Rounds side by side; empty for one round.
	Spreads []Spread `json:"spreads,omitempty"`
	// Round is the number of the round from 1 that this result, or its headline, is; 0 for a run of one round.
	Round       int          `json:"round,omitempty"`
	Calibration *Calibration `json:"calibration,omitempty"`
}

// Config is what the run was asked for: as given, and as it took effect.
type Config struct {
	// Given are the command-line arguments.
	Given []string `json:"given"`
	// The rest is the effective configuration.
	Targets []string `json:"targets"`
	Mode    string   `json:"mode"`  // oneway or echo
	Model   string   `json:"model"` // open, closed or blocking; see the Model constants
	Profile string   `json:"profile"`
	// Paced is false for --rate max: there is no plan, so lag, rate and duty say nothing.
	Paced        bool  `json:"paced"`
	DurationNS   int64 `json:"duration_ns"`
	WarmupNS     int64 `json:"warmup_ns"`
	TimeoutNS    int64 `json:"timeout_ns"`
	DrainNS      int64 `json:"drain_ns"` // 0 = 3 x the largest round trip
	MaxLagNS     int64 `json:"max_lag_ns"`
	PayloadBytes int   `json:"payload_bytes"`
	// Payload describes what fills it: "stamp", "compact stamp", "template".
	Payload string   `json:"payload"`
	Flows   int      `json:"flows"`
	Workers int      `json:"workers"`
	CPUs    []int    `json:"cpus"`
	Batch   int      `json:"batch"`
	CatchUp string   `json:"catch_up"`
	Wait    string   `json:"wait"`
	Seed    uint64   `json:"seed"`
	SLOs    []string `json:"slos"`
	Rounds  int      `json:"rounds"`
	// Clients and ThinkNS belong to the closed model, Senders to the blocking one. MaxInFlight caps the open one; 0 = no cap. CorrectNS is
	// the interval of Result.Corrected.
	Clients     int   `json:"clients,omitempty"`
	ThinkNS     int64 `json:"think_ns,omitempty"`
	Senders     int   `json:"senders,omitempty"`
	MaxInFlight int   `json:"max_in_flight,omitempty"`
	CorrectNS   int64 `json:"correct_ns,omitempty"`
	// ClockStart says where the latency clock starts, in words, for the reader.
	ClockStart string `json:"clock_start"`
}

// Known says whether a fact of Host is one: the host may not have such a thing ("none", as virtual machines have no frequency
// governor) or not tell ("unknown"), or nobody asked ("").
func Known(fact string) bool { return fact != "" && fact != "unknown" && fact != "none" }

// Host is the machine, as far as its figures depend on it. See Known.
type Host struct {
	Hostname string `json:"hostname"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	// NIC is the interface that the traffic leaves by; Queues its number of queues (0 = unknown) and NICNode its NUMA node
	// (-1 = unknown or none).
	NIC         string `json:"nic"`
	Driver      string `json:"driver"`
	Queues      int    `json:"queues"`
	NICNode     int    `json:"nic_node"`
	Clocksource string `json:"clocksource"`
	Governor    string `json:"governor"`
	Virt        string `json:"virt"`
	IRQBalance  bool   `json:"irqbalance"`
	GoVersion   string `json:"go"`
	Blast       string `json:"blast"`
}

// Backend is the send path as granted.
type Backend struct {
	Name string `json:"name"`
	// Auto says why auto chose it; empty when it was named.
	Auto          string   `json:"auto,omitempty"`
	Mode          string   `json:"mode"`
	GSO           int      `json:"gso"`
	GRO           bool     `json:"gro"`
	ZeroCopy      bool     `json:"zero_copy"`
	Batch         int      `json:"batch"`
	SendBuffer    int      `json:"send_buffer_bytes"`
	ReceiveBuffer int      `json:"receive_buffer_bytes"`
	Notes         []string `json:"notes"`
}

// Verdict is VALID or INVALID with reasons; package verdict fills it.
type Verdict struct {
	Valid    bool     `json:"valid"`
	Reasons  []Reason `json:"reasons"`
	Warnings []Reason `json:"warnings"`
	// SLOs are the outcomes of the run's SLOs; they say nothing about validity.
	SLOs []SLO `json:"slos"`
}

// Reason is one finding: a stable code and a sentence with figures and units.
type Reason struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Codes are the distinct codes in the order of the reasons.
func Codes(reasons []Reason) []string {
	var codes []string
	for _, r := range reasons {
		if !slices.Contains(codes, r.Code) {
			codes = append(codes, r.Code)
		}
	}
	return codes
}

// SLO is one service level objective and whether it held.
type SLO struct {
	Text   string `json:"text"`
	Met    bool   `json:"met"`
	Detail string `json:"detail"`
}

// Rate is what was asked and what came of it. The four bit rates count sent packets: payload; IP = payload + 28 (IPv6 48);
// L2 = IP + 18 (header and FCS, at least 64); L1 = L2 + 20 (preamble and gap).
type Rate struct {
	// TargetPPS is the mean rate of the plan over the measured time: slots planned / planned time; 0 for --rate max.
	TargetPPS   float64 `json:"target_pps"`
	AchievedPPS float64 `json:"achieved_pps"`
	RepliedPPS  float64 `json:"replied_pps"`
	L1BPS       float64 `json:"l1_bps"`
	L2BPS       float64 `json:"l2_bps"`
	IPBPS       float64 `json:"ip_bps"`
	PayloadBPS  float64 `json:"payload_bps"`
	// ElapsedNS is the measured time that the rates are counts over.
	ElapsedNS int64 `json:"elapsed_ns"`
}

// Ledger is the conservation line. Every planned slot has one of four fates, and in echo mode every sent packet one of
// four more; Check adds them up:
//
//	planned = sent + refused + abandoned + kernel dropped
//	sent    = replied + late + lost + in flight
//	lost    = lost up + lost down + lost unknown
//
// Duplicate, Reordered, SelfLost and Stray describe packets that are already counted, or were never ours.
type Ledger struct {
	Planned uint64 `json:"planned"`
	// Sent is accepted by the kernel (sockets) or completed without a drop (rings).
	Sent uint64 `json:"sent"`
	// Refused counts by cause.
	Refused map[string]uint64 `json:"refused"`
	// Abandoned slots were given up by the catch-up policy, never offered to the kernel.
	Abandoned uint64 `json:"abandoned"`
	// KernelDropped packets were accepted and then dropped before the wire. They are not sent.
	KernelDropped uint64 `json:"kernel_dropped"`
	Replied       uint64 `json:"replied"`
	Late          uint64 `json:"late"`
	Duplicate     uint64 `json:"duplicate"`
	Reordered     uint64 `json:"reordered"`
	Lost          uint64 `json:"lost"`
	InFlight      uint64 `json:"in_flight"`
	// InFlightAtLeastNS is the least time that packets in flight at the end had been waiting: they are censored there.
	InFlightAtLeastNS int64 `json:"in_flight_at_least_ns"`
	// LostUp never reached our server, LostDown did; LostUnknown is the rest of Lost (another server, or its report was lost too).
	LostUp      uint64 `json:"lost_up"`
	LostDown    uint64 `json:"lost_down"`
	LostUnknown uint64 `json:"lost_unknown"`
	// SelfLost are replies that the generator's own receive path dropped.
	SelfLost uint64 `json:"self_lost"`
	// Stray are packets received that belong to no slot of this run.
	Stray uint64 `json:"stray"`
}

// RefusedTotal sums the causes.
func (l *Ledger) RefusedTotal() uint64 {
	var n uint64
	for _, c := range l.Refused {
		n += c
	}
	return n
}

// Events counts what explains losses, by name (see backend.Event).
type Events map[string]uint64

// CounterSent names the Counter of packets that left by the interface of this run. Whoever reads it adds it only where the
// interface counts each packet of this backend (not for GSO trains on virtual devices), and over the warm-up as well, so
// that fewer than Ledger.Sent is a contradiction.
const CounterSent = "interface_sent"

// Counter is a kernel or interface counter that moved during the run. It belongs to the whole host or namespace.
type Counter struct {
	Name  string `json:"name"`
	Delta int64  `json:"delta"`
}

// Second is one interval of the timeline. Intervals are one second, doubled whenever there would be more than
// TimelineMax of them.
type Second struct {
	// T is the interval's end in seconds since the start of the measured part.
	T float64 `json:"t_s"`
	// Planned, Sent, Replied and Lag and Latency are of this interval.
	Planned      uint64 `json:"planned"`
	Sent         uint64 `json:"sent"`
	Replied      uint64 `json:"replied"`
	LagP50NS     int64  `json:"lag_p50_ns"`
	LagP99NS     int64  `json:"lag_p99_ns"`
	LatencyP99NS int64  `json:"latency_p99_ns"`
	// Steal is the share (0..1) of CPU time that the hypervisor or a cgroup quota took away.
	Steal float64 `json:"steal"`
}

// Worker is one sending thread.
type Worker struct {
	CPU   int     `json:"cpu"` // -1 = not pinned
	Node  int     `json:"node"`
	Queue int     `json:"queue"` // -1 = none
	Duty  float64 `json:"duty"`
	Sent  uint64  `json:"sent"`
	// Flows is the number of flows it drives.
	Flows               int   `json:"flows"`
	LagP99NS            int64 `json:"lag_p99_ns"`
	InvoluntarySwitches int64 `json:"involuntary_switches"`
	// GuardNS is the measured time before a planned moment at which sleeping stops and spinning begins.
	GuardNS int64 `json:"guard_ns"`
	// UserNS and SystemNS are the CPU time charged to the thread, and to a kernel thread that sends for it.
	UserNS   int64 `json:"user_ns"`
	SystemNS int64 `json:"system_ns"`
}

// Calibration is the stored ceiling that the run is judged against.
type Calibration struct {
	ID         string  `json:"id"`
	CeilingPPS float64 `json:"ceiling_pps"`
	Margin     float64 `json:"margin"`
	// PayloadBytes and Workers are of the calibrated row that was nearest to the run.
	PayloadBytes int `json:"payload_bytes"`
	Workers      int `json:"workers"`
}

// Histogram is a Hist in JSON: the figures people read, and the whole of it as HdrHistogram V2 (compressed, base64).
type Histogram struct {
	Count uint64 `json:"count"`
	Min   int64  `json:"min"`
	// Sum is exact, up to 128 bits, so that merged results have the mean of one histogram of all samples.
	Sum   json.Number `json:"sum"`
	Mean  float64     `json:"mean"`
	P50   int64       `json:"p50"`
	P90   int64       `json:"p90"`
	P99   int64       `json:"p99"`
	P999  int64       `json:"p999"`
	P9999 int64       `json:"p9999"`
	Max   int64       `json:"max"`
	// Refused is the number of values outside the range of 1 ns to 1 h.
	Refused uint64 `json:"refused"`
	Over    Over   `json:"over"`
	HDR     string `json:"hdr"`
}

// Over counts the values above fixed thresholds.
type Over struct {
	Ms1   uint64 `json:"1ms"`
	Ms10  uint64 `json:"10ms"`
	Ms100 uint64 `json:"100ms"`
	S1    uint64 `json:"1s"`
}
