package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"blast/stats"
)

// TruthSchema names the shape of Truth in JSON.
const TruthSchema = "blast.truth/1"

const (
	// truthNames bounds each list of names of a run; counts go on beyond it.
	truthNames = 1 << 20
	// truthRuns is the number of runs that a target remembers, the newest.
	truthRuns = 16
)

// Truth is what a queueing target knows about itself: what came, what it did, and which requests it touched.
type Truth struct {
	Schema string `json:"schema"`
	// Queue describes the target in one line.
	Queue string `json:"queue"`
	// Denied packets came from peers outside the allow list; they are in no run.
	Denied uint64 `json:"denied"`
	// Drops were lost by the kernel before the target saw them: its receive buffer was full. They are in no run either. Of a target inside the
	// kernel, which has no buffer, they are the requests in runs that were touched and that it had no room to name.
	Drops uint64 `json:"drops"`
	// Runs are the runs so far, the newest last, at most 16.
	Runs []RunTruth `json:"runs"`
}

// Name names one request: the sender's worker and its sequence number, or worker 0 and the number of arrival where it had no stamp.
type Name struct {
	Worker uint16 `json:"worker"`
	Seq    uint64 `json:"seq"`
}

// Touched is a list of requests. Count goes on when the list is full.
type Touched struct {
	Count uint64 `json:"count"`
	Names []Name `json:"names"`
}

func (t *Touched) add(n Name) {
	t.Count++
	if len(t.Names) < truthNames {
		t.Names = append(t.Names, n)
	}
}

// RunTruth is the truth of one run: from its first packet to the first of the next.
//
//	arrivals = dropped + full + completions + inside
//	completions = answered + dropped replies + refused
type RunTruth struct {
	// Epoch is the one of the first packet's stamp.
	Epoch uint8 `json:"epoch"`
	// ElapsedNS is from the first arrival to the last departure so far.
	ElapsedNS int64 `json:"elapsed_ns"`
	// StallsReached is how many of the Stalls configured had begun by then: a stall outside the run was none.
	StallsReached int `json:"stalls_reached"`
	Stalls        int `json:"stalls"`

	Arrivals    uint64 `json:"arrivals"`
	Completions uint64 `json:"completions"`
	Inside      uint64 `json:"inside"`
	Answered    uint64 `json:"answered"`
	// Refused replies were not taken by the kernel.
	Refused uint64 `json:"refused"`

	// Dropped at the door; Full were dropped there because the queue had no room.
	Dropped Touched `json:"dropped"`
	Full    Touched `json:"full"`
	// DroppedReplies were served.
	DroppedReplies Touched `json:"dropped_replies"`
	Duplicated     Touched `json:"duplicated"`
	Delayed        Touched `json:"delayed"`
	// Reordered replies left behind a later request of their flow, whatever the cause: the fault, a delay, or unequal service times.
	Reordered Touched `json:"reordered"`
	// NotReordered is how many of the reorder faults came to nothing, since no reply of the flow followed in time.
	NotReordered uint64 `json:"not_reordered"`

	// InsideMax is the largest number of requests in the target at once. InsideMean is the mean over ElapsedNS, and by Little's law equals
	// arrivals served / elapsed x SojournMeanNS.
	InsideMax     int     `json:"inside_max"`
	InsideMean    float64 `json:"inside_mean"`
	SojournMeanNS int64   `json:"sojourn_mean_ns"`
	// Sojourn is from arrival to computed departure, Behind from there to the moment the reply was sent: how far the target itself was from
	// what it should have been.
	Sojourn stats.Histogram `json:"sojourn_ns"`
	Behind  stats.Histogram `json:"behind_ns"`
}

// WriteJSON writes the truth.
func (t *Truth) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(t); err != nil {
		return fmt.Errorf("truth: %w", err)
	}
	return nil
}

// String is a few lines for people: one for the target, one for each run.
func (t *Truth) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "queue %s: %d runs, denied %d, drops %d", t.Queue, len(t.Runs), t.Denied, t.Drops)
	for i := range t.Runs {
		r := &t.Runs[i]
		fmt.Fprintf(&b, "\nrun %d: arrivals %d, completions %d, inside %d (mean %.2f, most %d), answered %d, refused %d, dropped %d, full %d, dropped replies %d, "+
			"duplicated %d, delayed %d, reordered %d, sojourn mean %s max %s, behind p99 %s max %s, stalls reached %d of %d", i+1, r.Arrivals, r.Completions,
			r.Inside, r.InsideMean, r.InsideMax, r.Answered, r.Refused, r.Dropped.Count, r.Full.Count, r.DroppedReplies.Count, r.Duplicated.Count, r.Delayed.Count,
			r.Reordered.Count, stats.FormatNS(r.SojournMeanNS), stats.FormatNS(r.Sojourn.Max), stats.FormatNS(r.Behind.P99), stats.FormatNS(r.Behind.Max), r.StallsReached, r.Stalls)
	}
	return b.String()
}

// running is a run that is being served.
type running struct {
	RunTruth
	began           int64 // ns of the target's clock: the first packet
	last            int64 // of the last arrival or departure
	sojourn, behind stats.Hist
	area            float64 // sum of all sojourns so far, ns
}

// truth is the run as it stands.
func (r *running) truth(stalls []Stall) RunTruth {
	t := r.RunTruth
	for _, list := range []*Touched{&t.Dropped, &t.Full, &t.DroppedReplies, &t.Duplicated, &t.Delayed, &t.Reordered} {
		list.Names = append([]Name{}, list.Names...)
	}
	t.ElapsedNS = r.last - r.began
	t.Sojourn, t.Behind = r.sojourn.Summary(), r.behind.Summary()
	t.SojournMeanNS = int64(r.sojourn.Mean())
	if t.ElapsedNS > 0 {
		t.InsideMean = r.area / float64(t.ElapsedNS)
	}
	t.Stalls = len(stalls)
	for _, s := range stalls {
		if time.Duration(t.ElapsedNS) > s.From {
			t.StallsReached++
		}
	}
	return t
}
