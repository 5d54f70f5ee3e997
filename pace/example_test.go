package pace_test

import (
	"fmt"
	"time"

	"blast/pace"
)

// Two workers share seven packets per three seconds.
func Example() {
	rate, err := pace.ParseRate("7/3s")
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := pace.Constant(rate, 3*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	for worker := range uint64(2) {
		share := pace.NewCursor(plan, worker, 2, 1)
		for {
			slot, _, at, ok := share.Next()
			if !ok {
				break
			}
			fmt.Println("worker", worker, "slot", slot, "at", time.Duration(at))
		}
	}
	// Output:
	// worker 0 slot 0 at 0s
	// worker 0 slot 2 at 857.142858ms
	// worker 0 slot 4 at 1.714285715s
	// worker 0 slot 6 at 2.571428572s
	// worker 1 slot 1 at 428.571429ms
	// worker 1 slot 3 at 1.285714286s
	// worker 1 slot 5 at 2.142857143s
}

// A share as numbers for an engine that runs elsewhere.
func ExampleSegmentsShare() {
	plan, err := pace.Burst(64, 10*time.Millisecond, time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	segments, err := pace.SegmentsShare(plan, 1, 4, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range segments {
		fmt.Printf("%d slots from slot %d, %d at once every %d ns\n", s.Slots, s.First, s.Group*s.Trains, s.Quot)
	}
	// Output:
	// 1600 slots from slot 1, 16 at once every 10000000 ns
}
