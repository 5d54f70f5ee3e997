//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"os"
	"time"

	"blast/internal/sys"
)

// sqThread reads the id of the kernel's submission thread from the ring's fdinfo (line SqThread, 5.2; io_uring/fdinfo.c). The
// kernel answers -1 while the ring is locked by somebody, so it is asked a few times.
func sqThread(fd int) (int, error) {
	path := fmt.Sprintf("/proc/self/fdinfo/%d", fd)
	for range 100 {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("uring: kernel thread: %w", err)
		}
		if tid := atoi(statusField(b, "SqThread"), -1); tid > 0 {
			return tid, nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("uring: kernel thread: not in %s", path)
}

// SQThreadTime is the CPU time the kernel's submission thread has used. It works for the ring and belongs to its owner's bill;
// the thread runs inside the process, so getrusage of the process contains it and that of the owner's thread does not.
func (r *Ring) SQThreadTime() (time.Duration, error) {
	if r.closed {
		return 0, os.ErrClosed
	}
	if r.granted.SQThread == 0 {
		return 0, errors.New("uring: kernel thread: the ring has none")
	}
	ns, err := sys.ThreadCPUTime(r.granted.SQThread)
	if err != nil {
		return 0, fmt.Errorf("uring: kernel thread %d: %w", r.granted.SQThread, err)
	}
	return time.Duration(ns), nil
}
