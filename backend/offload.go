package backend

import (
	"time"
)

// An offload executes a plan by itself: where the other backends are asked for each batch, it takes a worker's whole share of the
// schedule in exact form, runs, and gives back the same books. It never approximates: what it cannot express, OpenOffload refuses
// with an error that wraps errors.ErrUnsupported and names the way out.

// Segment is a stretch of a plan: Slots slots, Each at one instant (the last instant may lack some), the first instant Start after
// the start of the measured part. Instants are stepped by additions only,
//
//	next = Start; acc = Acc
//	after each instant: next += Quot; acc += Rem; if acc >= Den { acc -= Den; next++ }
//
// in ns. It is pace.Segment without slot numbers: a worker's slots are numbered in the order of its segments.
type Segment struct {
	Start                            time.Duration // below zero in the warm-up
	Slots, Acc, Quot, Rem, Den, Each uint64
}

// CatchUp is what becomes of slots that are late; the values and meanings are the engine's.
type CatchUp uint8

// The catch-up policies.
const (
	CatchUpBurst CatchUp = iota // send what is due
	CatchUpSkip                 // give up slots later than MaxLag
	CatchUpAbort                // end at the first slot later than MaxLag
)

// OffloadConfig is one worker's share of a run.
type OffloadConfig struct {
	// Config holds flows, payload size and interface. Batch 0 lets the offload choose for the rate. Receive is not
	// used: replies are the OffloadReceiver's.
	Config
	// CPU is where the worker will run, -1 = anywhere.
	CPU int
	// Worker and Epoch go into the stamps. Payload is what fills the rest: nil = zeros, else PayloadBytes long.
	Worker  uint16
	Epoch   uint8
	Payload []byte
	// Segments is the share with its warm-up. Where a plan has no segments, Segments is nil and Times yields the planned times of all
	// Slots slots in order, from one other goroutine, ahead of time.
	Segments []Segment
	Times    func() time.Duration
	Slots    uint64
	// First is the number of the first measured slot: those before it are warm-up and count for nothing.
	First uint64
	// Unpaced has no plan: as fast as the kernel takes them, from Segments[0].Start to the deadline. What is sent from the start on is measured and
	// numbered from First.
	Unpaced bool
	// Rate is the mean rate of the share in packets per second, for the choice of the batch; 0 with Unpaced.
	Rate float64
	// CatchUp and MaxLag are the policy for late slots.
	CatchUp CatchUp
	MaxLag  time.Duration
	// Interval is the timeline's.
	Interval time.Duration
	// Tell makes Unsent name the measured slots that are not sent.
	Tell bool
	// Held says that sources have their ports already and that somebody else's sockets are bound to them.
	Held bool
}

// Offload is one worker. Run is called by one locked, pinned thread; everything else by any one other thread.
type Offload interface {
	// Run executes the share: it makes everything ready, waits for Start, and returns when the share is done or the deadline or Stop has
	// come, after atMost in any case, or with an error when the kernel does not go on. The books hold what was done until then.
	Run(atMost time.Duration) error
	// Ready reports whether Run waits for Start. Until then what comes due would be late by the time that getting ready takes.
	Ready() (bool, error)
	// Start gives the order, once: start is the beginning of the measured part, and nothing is sent from deadline on, both ns of
	// CLOCK_MONOTONIC.
	Start(start, deadline int64) error
	// Stop ends Run within some ms.
	Stop()
	// Collect calls fn for each interval that is over at now and was not collected before, in order; with now = math.MaxInt64, after Run,
	// for what is left. What a late call can no longer tell apart goes to the earlier interval; nothing is lost.
	Collect(now int64, fn func(*OffloadInterval)) error
	// Books is what has been done so far; exact once Run has returned.
	Books() (OffloadBooks, error)
	// Unsent calls fn, where OffloadConfig.Tell asks for it, for each measured slot before Books.Next that was skipped, refused or dropped
	// since the last call. missed is how many there was no room for so far.
	Unsent(fn func(seq uint64)) (missed uint64, err error)
	// Limits is what was granted. Notes holds the flush quantum: how long after its stamp a packet may leave.
	Limits() Limits
	// Close releases everything. It is idempotent.
	Close() error
}

// OffloadInterval is a sender's part of one interval of the timeline.
type OffloadInterval struct {
	Index int64
	Sent  uint64
	Lag   Buckets
}

// Buckets is a histogram of ns in the layout of stats.Hist, with exact sum and extremes.
type Buckets struct {
	Counts       []uint64 // by stats.BucketIndex; valid only inside the call that hands it over
	Min, Max     int64
	SumLo, SumHi uint64
	Refused      uint64
}

// OffloadBooks is the account of one worker's measured slots. Times are ns of CLOCK_MONOTONIC, 0 = never.
type OffloadBooks struct {
	// Next is the number of the slot after the last one dealt with: First + sent + dropped + skipped + refused.
	Next uint64
	// Sent slots were taken by the device; Dropped were taken and dropped by it; Skipped were given up by the policy.
	Sent, Dropped, Skipped uint64
	// Refused slots were refused for good.
	Refused [NumCauses]uint64
	// Ended is when Run ended before the share was done: by the deadline, Stop or the abort policy.
	Ended int64
	// Aborted is the lag in ns of the slot that ended the run under CatchUpAbort.
	Aborted int64
	// LastSent is the stamp of the last packet.
	LastSent int64
	// Waited is the time spent waiting for the next slot within the measured part, ns. All else is duty, softirqs on the same CPU included.
	Waited int64
	// Guard is how exactly the wait ends, ns.
	Guard int64
	// Gaps is the number of times that the execution had to be started anew, Bridged how many of them a second one stood in for, and MaxGap
	// the longest time in between; what came due meanwhile is in the lag.
	Gaps, Bridged uint64
	MaxGap        int64
	// Flush says how long after their stamps the packets left, ns; valid only once Run has returned.
	Flush Buckets
	// Gap is between consecutive packets as the device took them, GapError how far that is off the plan's, ns; empty where the offload does not
	// look at it, which is so for plans that leave no time for it. Valid only once Run has returned.
	Gap, GapError Buckets
}

// ReceiverConfig opens an in-kernel receiver, for offloads or for any other backend.
type ReceiverConfig struct {
	// Interface is where replies arrive, and Ports the local UDP ports that they come to; an OpenOffload fills both in. There can be one
	// receiver on an interface.
	Interface string
	Ports     []uint16
	Epoch     uint8
	// Shares says what each worker sends, by worker number.
	Shares []ReceiverShare
	// Timeout is when a reply is late, from planned.
	Timeout time.Duration
	// Interval is the timeline's.
	Interval time.Duration
	// Tell is which replies are told one by one, by Told; 0 = none.
	Tell ReplyKinds
}

// ReplyKinds is what a reply is, a set.
type ReplyKinds uint32

// The kinds of a reply. Each has one of Fresh and Duplicate; the others come with Fresh.
const (
	ReplyFresh     ReplyKinds = 1 << iota // the first one of its slot
	ReplyLate                             // after the timeout
	ReplyDuplicate                        // not the first one of its slot
	ReplyReordered                        // behind the reply to a later slot of its flow
)

// Reply is one reply that is told by itself. Times are ns of CLOCK_MONOTONIC.
type Reply struct {
	Worker                  uint16
	Seq                     uint64
	Planned, Sent, Received int64
	Kinds                   ReplyKinds
}

// ReceiverShare is one worker as its receiver knows it.
type ReceiverShare struct {
	// First is the first measured slot, Limit the number behind the last: replies to others are strays.
	First, Limit uint64
	// Flows is the number of flows that the slots go round.
	Flows int
}

// OffloadReceiver takes the replies of all workers where they arrive and times them. Their payloads are never handed out.
type OffloadReceiver interface {
	// Begin starts taking; start is the beginning of the measured part in ns of CLOCK_MONOTONIC.
	Begin(start int64) error
	// Collect is like Offload.Collect.
	Collect(now int64, fn func(*ReceiverInterval)) error
	// Books is the account by worker so far. After the last Collect, with math.MaxInt64, no reply is taken any more, and it is final.
	Books() ([]ReceiverBooks, error)
	// Unseen counts the slots [from, to) of a worker without a reply, as far as the window still holds them, and calls each, which may be
	// nil, for every one.
	Unseen(worker int, from, to uint64, each func(seq uint64)) (uint64, error)
	// Told calls fn for the measured replies of the kinds asked for that came since the last call. missed is how many there was no room for so
	// far.
	Told(fn func(*Reply)) (missed uint64, err error)
	// Mode is one line for the report: "native XDP" or "generic XDP", Notes what a reader must know.
	Mode() string
	Notes() []string
	// Close stops taking and detaches. It is idempotent.
	Close() error
}

// ReceiverInterval is the receiver's part of one interval of the timeline, all workers together.
type ReceiverInterval struct {
	Index                    int64
	Replied                  uint64 // late ones included
	Latency, Service, Server Buckets
}

// ReceiverBooks is the account of one worker's replies.
type ReceiverBooks struct {
	// Unique slots have their first reply: Replied in time or Late.
	Unique, Replied, Late uint64
	// Duplicate, Reordered and Stray are as in stats.Ledger.
	Duplicate, Reordered, Stray uint64
	// SelfLost were lost by the receiver's own buffers, those of all workers where they share one.
	SelfLost uint64
	// Longest is the largest service time, warm-up included.
	Longest time.Duration
}

// OpenOffload opens the workers of a run, and with a ReceiverConfig the receiver of their replies, on the calling thread and in its
// network namespace. Which threads run them does not matter.
type OpenOffload func([]OffloadConfig, *ReceiverConfig) ([]Offload, OffloadReceiver, error)

// OpenReceiver opens an in-kernel receiver in the network namespace of the calling thread.
type OpenReceiver func(ReceiverConfig) (OffloadReceiver, error)

// OffloadEntry is one row of the table of offloads that cmd/blast holds beside that of the other backends.
type OffloadEntry struct {
	// Name is the value of --backend.
	Name string
	// Open and Receiver open a run's workers, and a receiver for workers of other backends.
	Open     OpenOffload
	Receiver OpenReceiver
	// Probe is like Entry.Probe: whether the kernel and the privileges are there.
	Probe func() error
	// Reach says, in the same way, whether the interface that flows lead to can be used, as far as that can be told without touching it; what
	// shows only after a program is attached, Open tells.
	Reach func([]Flow) error
}
