//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"blast/internal/ring"
)

// The kernel reads these structs by offset; a shifted field would send from a wrong address.
func TestLayout(t *testing.T) {
	var s SQE
	var m Message
	for _, tc := range []struct {
		what      string
		got, want uintptr
	}{
		{"sizeof sqe", unsafe.Sizeof(s), 64},
		{"sqe.flags", unsafe.Offsetof(s.Flags), 1},
		{"sqe.ioprio", unsafe.Offsetof(s.IOPrio), 2},
		{"sqe.fd", unsafe.Offsetof(s.FD), 4},
		{"sqe.off", unsafe.Offsetof(s.Off), 8},
		{"sqe.addr", unsafe.Offsetof(s.Addr), 16},
		{"sqe.len", unsafe.Offsetof(s.Len), 24},
		{"sqe.msg_flags", unsafe.Offsetof(s.OpFlags), 28},
		{"sqe.user_data", unsafe.Offsetof(s.UserData), 32},
		{"sqe.buf_index", unsafe.Offsetof(s.BufIndex), 40},
		{"sqe.personality", unsafe.Offsetof(s.Personality), 42},
		{"sqe.addr_len", unsafe.Offsetof(s.AddrLen), 44},
		{"sqe.addr3", unsafe.Offsetof(s.Addr3), 48},
		{"sizeof cqe", unsafe.Sizeof(CQE{}), 16},
		{"cqe.res", unsafe.Offsetof(CQE{}.Res), 8},
		{"cqe.flags", unsafe.Offsetof(CQE{}.Flags), 12},
		{"sizeof msghdr", unsafe.Sizeof(msghdr{}), unsafe.Sizeof(unix.Msghdr{})},
		{"msghdr.iov", unsafe.Offsetof(m.hdr.iov), unsafe.Offsetof(unix.Msghdr{}.Iov)},
		{"msghdr.control", unsafe.Offsetof(m.hdr.control), unsafe.Offsetof(unix.Msghdr{}.Control)},
		{"msghdr.flags", unsafe.Offsetof(m.hdr.flags), unsafe.Offsetof(unix.Msghdr{}.Flags)},
		{"sizeof message", unsafe.Sizeof(m), 192},
		{"sizeof iovec", unsafe.Sizeof(Iovec{}), 16},
		{"sizeof timespec", unsafe.Sizeof(Timespec{}), 16},
		{"sizeof io_uring_buf", unsafe.Sizeof(bufEntry{}), 16},
		{"io_uring_buf.bid", unsafe.Offsetof(bufEntry{}.id), 12},
		{"message checks use the real sizes", msghdrBytes, unsafe.Sizeof(m.hdr)},
		{"timespec checks use the real size", timespecBytes, unsafe.Sizeof(Timespec{})},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, tc.got, tc.want)
		}
	}
}

func testArena(t testing.TB, bytes int) *Arena {
	t.Helper()
	r, err := ring.Map(ring.MapConfig{Bytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return &Arena{ring.NewArena(r)}
}

// Each Prep method writes exactly what the manual page of its operation says, over whatever was there before.
func TestPrep(t *testing.T) {
	a := testArena(t, 4096)
	b, _ := a.Bytes(100, 64)
	ms, _ := a.Messages(1)
	m := &ms[0]
	sa, _ := a.Sockaddrs(1)
	if err := sa[0].Set(netip.MustParseAddrPort("127.0.0.1:9")); err != nil {
		t.Fatal(err)
	}
	ts, _ := a.Timespecs(1)
	at, hdr := ring.Addr(b), ring.AddrOf(m)
	for _, tc := range []struct {
		name string
		prep func(*SQE)
		want SQE
	}{
		{"nop", func(s *SQE) { s.PrepNop() }, SQE{FD: -1}},
		{"send", func(s *SQE) { s.PrepSend(3, b, unix.MSG_DONTWAIT) }, SQE{Op: 26, FD: 3, Addr: at, Len: 100, OpFlags: 0x40}},
		{"send of nothing has no address", func(s *SQE) { s.PrepSend(3, b[:0], 0) }, SQE{Op: 26, FD: 3, Addr: 0, Len: 0}},
		{"send to an address", func(s *SQE) { s.PrepSend(3, b, 0); s.To(&sa[0]) }, SQE{Op: 26, FD: 3, Addr: at, Len: 100, Off: ring.AddrOf(&sa[0]), AddrLen: 16}},
		{"zero copy", func(s *SQE) { s.PrepSendZC(3, b, 0, false) }, SQE{Op: 47, FD: 3, Addr: at, Len: 100}},
		{"zero copy with report from a registered buffer", func(s *SQE) { s.PrepSendZC(3, b, 0, true); s.FixedBuffer(7) }, SQE{Op: 47, FD: 3, Addr: at, Len: 100, IOPrio: 12, BufIndex: 7}},
		{"sendmsg", func(s *SQE) { s.PrepSendMsg(3, m, 0) }, SQE{Op: 9, FD: 3, Addr: hdr, Len: 1}},
		{"sendmsg zero copy", func(s *SQE) { s.PrepSendMsgZC(3, m, 0, true) }, SQE{Op: 48, FD: 3, Addr: hdr, Len: 1, IOPrio: 8}},
		{"recv, polling first", func(s *SQE) { s.PrepRecv(3, b, 0); s.PollFirst() }, SQE{Op: 27, FD: 3, Addr: at, Len: 100, IOPrio: 1}},
		{"recvmsg", func(s *SQE) { s.PrepRecvMsg(3, m, 0) }, SQE{Op: 10, FD: 3, Addr: hdr, Len: 1}},
		{"recv multishot", func(s *SQE) { s.PrepRecvMultishot(3, 5, 0) }, SQE{Op: 27, Flags: BufferSelect, FD: 3, IOPrio: 2, BufIndex: 5}},
		{"recvmsg multishot", func(s *SQE) { s.PrepRecvMsgMultishot(3, m, 5, 0) }, SQE{Op: 10, Flags: BufferSelect, FD: 3, Addr: hdr, Len: 1, IOPrio: 2, BufIndex: 5}},
		{"timeout", func(s *SQE) { s.PrepTimeout(&ts[0], 2, TimeoutAbs) }, SQE{Op: 11, FD: -1, Addr: ring.AddrOf(&ts[0]), Len: 1, Off: 2, OpFlags: 1}},
		{"cancel by user data", func(s *SQE) { s.PrepCancel(77) }, SQE{Op: 14, FD: -1, Addr: 77}},
		{"cancel all of a slot", func(s *SQE) { s.PrepCancelFD(4, true) }, SQE{Op: 14, FD: 4, OpFlags: 1 | 2 | 8}},
		{"cancel everything", func(s *SQE) { s.PrepCancelAll() }, SQE{Op: 14, FD: -1, OpFlags: 1 | 4}},
	} {
		s := SQE{Op: 200, Flags: 0xff, IOPrio: 0xffff, FD: 9, Off: 9, Addr: 9, Len: 9, OpFlags: 9, UserData: 9, BufIndex: 9, Personality: 9, AddrLen: 9, Pad: 9, Addr3: 9, Pad2: 9}
		tc.prep(&s)
		if diff := cmp.Diff(tc.want, s); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// What points outside is told from what points inside, also at the very edges.
func TestReaches(t *testing.T) {
	const start, size = 0x10000, 0x1000
	for _, tc := range []struct {
		name string
		s    SQE
		want bool
	}{
		{"first byte to last", SQE{Op: OpSend, Addr: start, Len: size}, true},
		{"one byte too long", SQE{Op: OpSend, Addr: start, Len: size + 1}, false},
		{"one byte too early", SQE{Op: OpSendZC, Addr: start - 1, Len: 1}, false},
		{"just behind", SQE{Op: OpRecv, Addr: start + size, Len: 1}, false},
		{"nothing to send needs no memory", SQE{Op: OpSend}, true},
		{"address outside", SQE{Op: OpSend, Addr: start, Len: 1, Off: 5, AddrLen: 16}, false},
		{"provided buffer", SQE{Op: OpRecv, Flags: BufferSelect}, true},
		{"msghdr cut by the end", SQE{Op: OpSendMsg, Addr: start + size - 55}, false},
		{"msghdr up to the end", SQE{Op: OpRecvMsg, Addr: start + size - 56}, true},
		{"timespec outside", SQE{Op: OpTimeout, Addr: 1}, false},
		{"cancel has a number, not an address", SQE{Op: OpCancel, Addr: 1}, true},
		{"wrap of the address space", SQE{Op: OpSend, Addr: ^uint64(0), Len: 2}, false},
	} {
		if got := tc.s.reaches(start, size); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// x/sys builds and parses the same bytes: an independent witness for addresses and control messages.
func TestMessage(t *testing.T) {
	a := testArena(t, 4096)
	ms, err := a.Messages(2)
	if err != nil {
		t.Fatal(err)
	}
	m := &ms[1]
	for _, s := range []string{"192.0.2.7:65535", "[2001:db8::1]:53", "[fe80::1%7]:9", "[::ffff:192.0.2.1]:80"} {
		ap := netip.MustParseAddrPort(s)
		if err := m.To(ap); err != nil {
			t.Fatal(err)
		}
		want := netip.AddrPortFrom(ap.Addr().WithZone(""), ap.Port())
		if got := m.Source(); got != want {
			t.Errorf("%s came back as %s", s, got)
		}
		if ap.Addr().Zone() != "" && binary.NativeEndian.Uint32(m.name.raw[24:]) != 7 {
			t.Errorf("%s: scope id lost", s)
		}
	}
	if err := m.To(netip.AddrPort{}); err != nil || m.hdr.name != 0 || m.hdr.namelen != 0 {
		t.Errorf("no destination: %v", err)
	}
	if err := m.name.Set(netip.AddrPortFrom(netip.MustParseAddr("fe80::1%nosuchif0"), 1)); err == nil {
		t.Error("an unknown zone was accepted")
	}
	if err := m.Segment(1200); err != nil {
		t.Fatal(err)
	}
	if err := m.AddControl(unix.SOL_SOCKET, unix.SCM_TXTIME, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	cms, err := unix.ParseSocketControlMessage(m.control[:m.hdr.controllen])
	if err != nil || len(cms) != 2 {
		t.Fatalf("%d control messages, %v", len(cms), err)
	}
	if cms[0].Header.Level != unix.SOL_UDP || cms[0].Header.Type != unix.UDP_SEGMENT || binary.NativeEndian.Uint16(cms[0].Data) != 1200 {
		t.Errorf("segment size: %+v", cms[0])
	}
	if err := m.AddControl(1, 1, make([]byte, 60)); err == nil {
		t.Error("control data beyond its room was accepted")
	}
	m.ClearControl()
	if m.hdr.controllen != 0 || m.hdr.control != 0 {
		t.Error("control data survived clearing")
	}
}

// A multishot buffer is cut where struct io_uring_recvmsg_out says; a buffer that lies is refused or clipped, never overrun.
func TestParseMultishot(t *testing.T) {
	a := testArena(t, 4096)
	ms, _ := a.Messages(1)
	m := &ms[0]
	if err := m.ForMultishot(32); err != nil {
		t.Fatal(err)
	}
	build := func(name, control, payload, flags uint32, body string) []byte {
		b := make([]byte, MultishotHeader(32), MultishotHeader(32)+len(body))
		for i, v := range []uint32{name, control, payload, flags} {
			binary.NativeEndian.PutUint32(b[4*i:], v)
		}
		var sa Sockaddr
		if err := sa.Set(netip.MustParseAddrPort("10.1.2.3:4567")); err != nil {
			t.Fatal(err)
		}
		copy(b[16:], sa.raw[:16])
		return append(b, body...)
	}
	d, err := m.Parse(build(16, 0, 5, 0, "hello"))
	if err != nil || string(d.Payload) != "hello" || d.Source != netip.MustParseAddrPort("10.1.2.3:4567") || len(d.Control) != 0 || d.Truncated {
		t.Errorf("plain datagram: %+v, %v", d, err)
	}
	d, err = m.Parse(build(16, 24, 9000, unix.MSG_TRUNC, "cut"))
	if err != nil || string(d.Payload) != "cut" || len(d.Control) != 24 || !d.Truncated {
		t.Errorf("datagram longer than the buffer: %+v, %v", d, err)
	}
	d, err = m.Parse(build(0, 0, 0, 0, ""))
	if err != nil || len(d.Payload) != 0 || d.Source.IsValid() {
		t.Errorf("empty datagram: %+v, %v", d, err)
	}
	if d, err = m.Parse(build(1<<31, 1<<31, 1<<31, 0, "x")); err != nil || len(d.Control) != 32 || string(d.Payload) != "x" {
		t.Errorf("absurd lengths must be clipped: %+v, %v", d, err)
	}
	if _, err = m.Parse(make([]byte, 20)); err == nil {
		t.Error("a buffer shorter than its header was parsed")
	}
	if err := m.ForMultishot(5000); err == nil {
		t.Error("more control data than any kernel gives was accepted")
	}
	if err := m.ForReceive(nil, MessageControl+1); err == nil {
		t.Error("more control data than the message holds was accepted")
	}
}

func FuzzParseMultishot(f *testing.F) {
	f.Add(make([]byte, 80), 16)
	f.Fuzz(func(t *testing.T, b []byte, control int) {
		var m Message
		if m.ForMultishot(control) != nil {
			return
		}
		if d, err := m.Parse(b); err == nil && len(d.Payload)+len(d.Control) > len(b) {
			t.Fatal("parts longer than the whole")
		}
	})
}

func TestCQE(t *testing.T) {
	for _, tc := range []struct {
		name                      string
		c                         CQE
		err                       error
		done, notification, copie bool
	}{
		{"sent", CQE{Res: 100}, nil, true, false, false},
		{"refused", CQE{Res: -11}, unix.EAGAIN, true, false, false},
		{"first half of a zero-copy send", CQE{Res: 100, Flags: FlagMore}, nil, false, false, false},
		{"notification", CQE{Flags: FlagNotification}, nil, true, true, false},
		{"notification: copied; the top bit is no error", CQE{Res: -1 << 31, Flags: FlagNotification}, nil, true, true, true},
		{"failed zero-copy send that still notifies", CQE{Res: -90, Flags: FlagMore}, unix.EMSGSIZE, false, false, false},
	} {
		if tc.c.Err() != tc.err || tc.c.Done() != tc.done || tc.c.More() == tc.done || tc.c.Notification() != tc.notification || tc.c.Copied() != tc.copie {
			t.Errorf("%s: %v %v %v %v", tc.name, tc.c.Err(), tc.c.Done(), tc.c.Notification(), tc.c.Copied())
		}
	}
	if id, ok := (CQE{Flags: FlagBuffer | 0xabcd<<16}).BufferID(); !ok || id != 0xabcd {
		t.Error("buffer id lost")
	}
}

func TestConfigValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"zero value", Config{}, true},
		{"largest", Config{Entries: MaxEntries, CQEntries: MaxCQEntries}, true},
		{"not a power of two", Config{Entries: 100}, false},
		{"beyond the kernel's limit", Config{Entries: 2 * MaxEntries}, false},
		{"completion queue smaller than submission queue", Config{Entries: 64, CQEntries: 32}, false},
		{"completion queue not a power of two", Config{Entries: 64, CQEntries: 100}, false},
		{"completion queue beyond the limit", Config{Entries: 64, CQEntries: 2 * MaxCQEntries}, false},
		{"negative arena", Config{ArenaBytes: -1}, false},
		{"poll idle below the kernel's unit", Config{SQPoll: true, SQPollIdle: time.Microsecond}, false},
		{"pin without polling", Config{SQPollPin: true}, false},
		{"negative CPU", Config{SQPoll: true, SQPollPin: true, SQPollCPU: -1}, false},
	} {
		if err := tc.cfg.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		SetupFlags(0).String():                        "bare",
		(SubmitAll | SingleIssuer | 1<<20).String():   "SUBMIT_ALL SINGLE_ISSUER 0x100000",
		Features(1 | 1<<8).String():                   "SINGLE_MMAP EXT_ARG",
		OpSendMsgZC.String():                          "SENDMSG_ZC",
		Op(99).String():                               "op 99",
		OpSet{1<<OpNop | 1<<OpSend | 1<<40}.String():  "NOP SEND",
		Granted{SQEntries: 8, CQEntries: 16}.String(): "sq 8, cq 16, bare",
		Granted{Flags: SQPoll, SQThread: 5, RingIndex: true, HugePages: true, Refused: []SetupFlags{SubmitAll, CoopTaskrun}}.String(): "sq 0, cq 0, SQPOLL, ring descriptor registered, kernel thread 5, huge pages, refused: SUBMIT_ALL | COOP_TASKRUN",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
