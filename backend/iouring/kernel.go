package iouring

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"blast/backend"
)

var _ backend.KernelThread = (*Sender)(nil)

// KernelTime implements backend.KernelThread: with SQPOLL, what the kernel's submission thread has used. The part in which it sent
// comes from the ring's fdinfo (SqWorkTime, Linux 6.8, io_uring/fdinfo.c); before, all of its time counts.
func (s *Sender) KernelTime() (cpu, busy time.Duration) {
	if !s.sqpoll || s.closed {
		return 0, 0
	}
	cpu, err := s.ring.SQThreadTime()
	if err != nil {
		return 0, 0 // the thread could not be told from others, as a note says
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", s.ring.FD()))
	if err != nil {
		return cpu, cpu
	}
	if busy, ok := workTime(info); ok {
		return cpu, min(busy, cpu)
	}
	return cpu, cpu
}

// workTime reads the line SqWorkTime of a ring's fdinfo, in microseconds. The kernel leaves it at 0 while somebody else has the ring.
func workTime(info []byte) (time.Duration, bool) {
	for line := range bytes.Lines(info) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if string(key) != "SqWorkTime" {
			continue
		}
		us, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		return time.Duration(us) * time.Microsecond, err == nil
	}
	return 0, false
}
