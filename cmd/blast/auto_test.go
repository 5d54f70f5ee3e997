package main

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blast/backend/iouring"
	"blast/internal/ring"
	"blast/internal/testskip"
)

// Where io_uring is switched off, auto goes on with sendmmsg and says why, even if the calibration of the host preferred io_uring, and
// naming the backend is an error with the cause and the remedy.
func TestKernelAutoWithoutIOUring(t *testing.T) {
	testskip.Root(t)
	testskip.IOUring(t, iouring.Probe())
	for _, c := range []struct {
		name string
		off  func(t *testing.T) (restore func())
		says []string
	}{
		{"sysctl", offBySysctl, []string{"kernel.io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"}},
		{"seccomp", offBySeccomp, []string{"seccomp", "io_uring_enter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // for good: a filter stays with its thread
			restore := c.off(t)
			chosen, why, err := choose("auto", iouring.Name)
			_, _, named := choose(iouring.Name, "")
			restore()
			if err != nil || chosen.Name != "sendmmsg" {
				t.Errorf("auto chose %q: %v", chosen.Name, err)
			}
			if !errors.Is(named, errors.ErrUnsupported) {
				t.Errorf("named: %v", named)
			}
			for _, w := range append(c.says, "io_uring") {
				if !strings.Contains(why, w) {
					t.Errorf("auto says %q, without %q", why, w)
				}
				if named != nil && !strings.Contains(named.Error(), w) {
					t.Errorf("named says %q, without %q", named, w)
				}
			}
		})
	}
}

// offBySysctl switches io_uring off for the whole machine, for as long as two answers take.
func offBySysctl(t *testing.T) func() {
	const path = "/proc/sys/kernel/io_uring_disabled"
	old, err := os.ReadFile(path)
	if err != nil {
		testskip.Skip(t, "io_uring", err.Error(), "a kernel from 6.6")
	}
	restore := func() {
		if err := os.WriteFile(path, old, 0o644); err != nil {
			t.Errorf("restore %s: %v", path, err)
		}
	}
	t.Cleanup(restore)
	if err := os.WriteFile(path, []byte("2\n"), 0o644); err != nil {
		testskip.Skip(t, "io_uring", err.Error(), "a writable /proc/sys")
	}
	return restore
}

// offBySeccomp forbids io_uring_setup on this thread, as the default profiles of containers do.
func offBySeccomp(t *testing.T) func() {
	region, err := ring.Map(ring.MapConfig{Bytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	arena := ring.NewArena(region)
	filter, err := ring.Carve[unix.SockFilter](arena, 4)
	if err != nil {
		t.Fatal(err)
	}
	copy(filter, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_IO_URING_SETUP},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	prog, err := ring.Carve[struct{ n, filter uint64 }](arena, 1) // struct sock_fprog
	if err != nil {
		t.Fatal(err)
	}
	prog[0].n, prog[0].filter = uint64(len(filter)), ring.AddrOf(&filter[0])
	err = errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(ring.AddrOf(&prog[0])), 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := region.Close(); err != nil {
			t.Error(err)
		}
	}
}
