package engine

import (
	"runtime"
	"slices"
	"testing"

	"blast/internal/sys"
)

// The collector leaves the workers' CPUs alone as long as there are others, and the thread is as before when the run is over.
func TestAside(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := sys.Affinity()
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1:]
	others := all[:len(all)-1]
	if len(others) == 0 {
		others = all // there is only one CPU, for everybody
	}
	for _, c := range []struct {
		name       string
		cpus, want []int
	}{
		{"workers that are not pinned", nil, all},
		{"a worker on the last CPU", last, others},
		{"workers everywhere", all, all},
	} {
		undo := (&Config{CPUs: c.cpus}).aside()
		during, err := sys.Affinity()
		undo()
		after, afterErr := sys.Affinity()
		if err != nil || !slices.Equal(during, c.want) {
			t.Errorf("%s: on CPUs %v, %v: want %v", c.name, during, err, c.want)
		}
		if afterErr != nil || !slices.Equal(after, all) {
			t.Errorf("%s: afterwards on CPUs %v, %v: want %v", c.name, after, afterErr, all)
		}
	}
}
