package sys

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of include/uapi/linux/io_uring.h; a wrong one would make the kernel read its neighbours.
func TestURingLayout(t *testing.T) {
	for _, tc := range []struct {
		what      string
		got, want uintptr
	}{
		{"io_uring_params", unsafe.Sizeof(URingParams{}), 120},
		{"io_uring_params.features", unsafe.Offsetof(URingParams{}.Features), 20},
		{"io_uring_params.sq_off", unsafe.Offsetof(URingParams{}.SQOff), 40},
		{"io_uring_params.cq_off", unsafe.Offsetof(URingParams{}.CQOff), 80},
		{"io_sqring_offsets", unsafe.Sizeof(URingSQOffsets{}), 40},
		{"io_sqring_offsets.array", unsafe.Offsetof(URingSQOffsets{}.Array), 24},
		{"io_cqring_offsets", unsafe.Sizeof(URingCQOffsets{}), 40},
		{"io_cqring_offsets.cqes", unsafe.Offsetof(URingCQOffsets{}.CQEs), 20},
		{"io_uring_getevents_arg", unsafe.Sizeof(URingGetEventsArg{}), 24},
		{"io_uring_getevents_arg.ts", unsafe.Offsetof(URingGetEventsArg{}.Ts), 16},
		{"__kernel_timespec", unsafe.Sizeof(Timespec64{}), 16},
		{"io_uring_probe_op", unsafe.Sizeof(URingProbeOp{}), 8},
		{"io_uring_probe header", unsafe.Offsetof(URingProbe{}.Ops), 16},
		{"io_uring_rsrc_update", unsafe.Sizeof(URingRsrcUpdate{}), 16},
		{"iovec", unsafe.Sizeof(URingIovec{}), unsafe.Sizeof(unix.Iovec{})},
		{"io_uring_buf_reg", unsafe.Sizeof(URingBufReg{}), 40},
		{"io_uring_buf_reg.bgid", unsafe.Offsetof(URingBufReg{}.Group), 12},
		{"io_uring_napi", unsafe.Sizeof(URingNAPI{}), 16},
		{"io_uring_napi.op_param", unsafe.Offsetof(URingNAPI{}.OpParam), 8},
		{"io_uring_sync_cancel_reg", unsafe.Sizeof(URingSyncCancel{}), 64},
		{"io_uring_sync_cancel_reg.timeout", unsafe.Offsetof(URingSyncCancel{}.Timeout), 16},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, tc.got, tc.want)
		}
	}
}

// The main thread's own clock must agree with the clock id arithmetic; a thread id beyond pid_max (2^22) has none.
func TestThreadCPUTime(t *testing.T) {
	if ns, err := ThreadCPUTime(os.Getpid()); err != nil || ns <= 0 {
		t.Fatalf("main thread: %d ns, %v", ns, err)
	}
	if _, err := ThreadCPUTime(1 << 23); err == nil {
		t.Fatal("a thread that does not exist has a clock")
	}
}
