//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"blast/internal/sys"
)

// sqThread finds the kernel's submission thread of the ring; before are those that existed before set-up. 0 means not found.
//
// The ring's fdinfo names it (line SqThread, io_uring/fdinfo.c), with three traps: -1 while the ring is locked by somebody; the
// maker's own thread until the new one has run for the first time (io_sq_offload_create presets task_pid); and the id of the
// outermost pid namespace, which means nothing inside a container. So an answer counts only when that thread has the name the
// kernel gives, iou-sqp-PID; otherwise a single new thread of that name is the one; and it is asked again for a while.
func sqThread(fd int, before []int) int {
	for range 200 {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)); err == nil {
			if tid := atoi(statusField(b, "SqThread"), -1); isSQThread(tid) {
				return tid
			}
		}
		var fresh []int
		for _, tid := range sqThreads() {
			if !slices.Contains(before, tid) {
				fresh = append(fresh, tid)
			}
		}
		if len(fresh) == 1 {
			return fresh[0]
		}
		time.Sleep(time.Millisecond)
	}
	return 0
}

// sqThreads lists the submission threads of all rings of the process.
func sqThreads() []int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range tasks {
		if tid, err := strconv.Atoi(e.Name()); err == nil && isSQThread(tid) {
			out = append(out, tid)
		}
	}
	return out
}

func isSQThread(tid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", tid))
	return err == nil && strings.HasPrefix(string(name), "iou-sqp-")
}

// SQThreadTime is the CPU time the kernel's submission thread has used. It works for the ring and belongs to its owner's bill:
// the thread runs inside the process, so getrusage of the process contains it and that of the owner's thread does not.
func (r *Ring) SQThreadTime() (time.Duration, error) {
	switch {
	case r.closed:
		return 0, os.ErrClosed
	case r.granted.Flags&SQPoll == 0:
		return 0, errors.New("uring: kernel thread: the ring has none")
	case r.granted.SQThread == 0:
		return 0, errors.New("uring: kernel thread: could not be told from others in /proc/self/task")
	}
	ns, err := sys.ThreadCPUTime(r.granted.SQThread)
	if err != nil {
		return 0, fmt.Errorf("uring: kernel thread %d: %w", r.granted.SQThread, err)
	}
	return time.Duration(ns), nil
}
