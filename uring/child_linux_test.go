//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"blast/internal/ring"
	"blast/internal/sys"
	"blast/internal/testskip"
)

// Some conditions belong to a whole process and cannot be undone (a filter, limits, runtime settings): the test binary runs
// itself with this variable naming the part to play.
const childEnv = "URING_TEST_CHILD"

// runChild plays a part and returns the exit code: 0 as expected, 1 with the reason on stderr.
func runChild(name string) int {
	runtime.LockOSThread() // filters and capabilities are per thread
	parts := map[string]func() error{
		"seccomp-eperm":  func() error { return childSeccomp(unix.SYS_IO_URING_SETUP, syscall.EPERM, "a seccomp filter forbids") },
		"seccomp-enosys": func() error { return childSeccomp(unix.SYS_IO_URING_SETUP, syscall.ENOSYS, "a seccomp filter hides") },
		"seccomp-enter": func() error {
			return childSeccomp(unix.SYS_IO_URING_ENTER, syscall.EPERM, "set-up is allowed but not the rest")
		},
		"memlock":       childMemlock,
		"memlock-cap":   childMemlockCap,
		"zero-copy":     childZeroCopy,
		"pid-namespace": childPIDNamespace,
	}
	part, ok := parts[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no part %q\n", name)
		return 1
	}
	err := part()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, errNotHere) {
		return 77
	}
	return 1
}

// errNotHere is wrapped by a part whose scene cannot be set on this host.
var errNotHere = errors.New("not possible here")

func child(t *testing.T, part string) { childIn(t, part, nil) }

func childIn(t *testing.T, part string, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+part)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 {
		testskip.Skip(t, "io_uring", strings.TrimSpace(string(out)), "a kernel with ifb, namespaces and the right to make them")
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", part, err, out)
	}
}

// A seccomp filter, such as a container's, is named as the cause, also when it hides the call or forgets a part of it.
func TestKernelSeccomp(t *testing.T) {
	testskip.IOUring(t, Probe())
	for _, part := range []string{"seccomp-eperm", "seccomp-enosys", "seccomp-enter"} {
		child(t, part)
	}
}

// childSeccomp puts one system call under a filter that answers errno, on this thread, and looks at what Probe says.
func childSeccomp(nr uint32, errno syscall.Errno, says string) error {
	region, err := ring.Map(ring.MapConfig{Bytes: 4096})
	if err != nil {
		return err
	}
	defer region.Close()
	arena := ring.NewArena(region)
	filter, err := ring.Carve[unix.SockFilter](arena, 4)
	if err != nil {
		return err
	}
	copy(filter, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: nr},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	// struct sock_fprog: a length and a pointer.
	prog, err := ring.Carve[struct{ n, filter uint64 }](arena, 1)
	if err != nil {
		return err
	}
	prog[0].n, prog[0].filter = uint64(len(filter)), ring.AddrOf(&filter[0])
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(ring.AddrOf(&prog[0])), 0, 0); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	err = Probe()
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, errno) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "io_uring_enter") {
		return fmt.Errorf("Probe: %w", errors.Join(errors.New("wrong answer"), err))
	}
	if nr == unix.SYS_IO_URING_SETUP {
		if _, err := New(Config{}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("New: %w", errors.Join(errors.New("wrong answer"), err))
		}
	}
	return nil
}

// Over the memlock limit the numbers and the fix are told; with the capability the limit does not exist.
func TestKernelMemlock(t *testing.T) {
	testskip.Root(t)
	testskip.IOUring(t, Probe())
	child(t, "memlock")
	child(t, "memlock-cap")
}

func childMemlock() error {
	// Root without the capability is somebody without the capability.
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return err
	}
	r, err := limited()
	if err != nil {
		return err
	}
	defer r.Close()
	for what, err := range map[string]error{
		"RegisterBuffers": r.RegisterBuffers([][]byte{r.region.Bytes()}),
		"CheckZeroCopy":   r.CheckZeroCopy(1 << 20),
		"ExplainENOMEM":   r.ExplainENOMEM(1 << 20),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "524288") || !strings.Contains(err.Error(), "CAP_IPC_LOCK is missing") || !strings.Contains(err.Error(), "ulimit -l ") {
			return fmt.Errorf("%s: %w", what, errors.Join(errors.New("wrong answer"), err))
		}
	}
	if err := r.CheckZeroCopy(512 << 10); err != nil {
		return err
	}
	// The kernel's own word, behind our check's back: what it refuses is what we predicted.
	iov := []sys.URingIovec{{Base: ring.Addr(r.region.Bytes()), Len: 1 << 20}}
	if err := sys.URingRegisterBuffers(r.fd, iov); !errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("the kernel's answer to too much locked memory: %w", errors.Join(errors.New("no ENOMEM"), err))
	}
	return nil
}

func childMemlockCap() error {
	r, err := limited()
	if err != nil {
		return err
	}
	defer r.Close()
	if !r.facts.ipcLock {
		return nil // a user namespace: nothing to show
	}
	return errors.Join(r.RegisterBuffers([][]byte{r.region.Bytes()}), r.CheckZeroCopy(1<<40))
}

// In a container fdinfo tells the submission thread's id of the outside world; it must be found all the same, and told from that
// of another ring.
func TestKernelSQPollPIDNamespace(t *testing.T) {
	testskip.Root(t)
	testskip.IOUring(t, Probe())
	childIn(t, "pid-namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS})
}

func childPIDNamespace() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w: %w", errNotHere, err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w: %w", errNotHere, err)
	}
	var tids [2]int
	for i := range tids {
		r, err := New(Config{SQPoll: true})
		if err != nil {
			return err
		}
		defer r.Close()
		tids[i] = r.Granted().SQThread
		if d, err := r.SQThreadTime(); err != nil || d <= 0 {
			return fmt.Errorf("ring %d, thread %d: %v: %w", i, tids[i], d, errors.Join(errors.New("no CPU time"), err))
		}
	}
	if tids[0] == tids[1] {
		return fmt.Errorf("two rings, one thread: %v", tids)
	}
	return nil
}

// A device that takes the pages as they are: only there zero copy is real. An ifb of an own network
// namespace does, and drops them.
func TestKernelZeroCopyForReal(t *testing.T) {
	testskip.Root(t)
	testskip.IOUring(t, Probe())
	childIn(t, "zero-copy", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
}

func childZeroCopy() error {
	sink := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb9", MTU: 9000}}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 99, 0, 1), Mask: net.CIDRMask(24, 32)}}
	if err := errors.Join(netlink.LinkAdd(sink), netlink.AddrAdd(sink, addr), netlink.LinkSetUp(sink)); err != nil {
		return fmt.Errorf("ifb device: %w: %w", errNotHere, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 99, 0, 2}, Port: 9}); err != nil {
		return err
	}
	r, err := New(Config{Entries: 64, CQEntries: 256, ArenaBytes: 1 << 20})
	if err != nil {
		return err
	}
	defer r.Close()
	slots, err := r.Arena().Slots(32, 8000, 4096)
	if err != nil {
		return err
	}
	if err := r.RegisterBuffers([][]byte{r.region.Bytes()}); err != nil {
		return err
	}
	results, notified, copied := 0, 0, 0
	for range 20 {
		for i, b := range slots {
			s := r.SQE()
			s.PrepSendZC(fd, b, 0, true)
			if i%2 == 0 {
				s.FixedBuffer(0)
			}
		}
		for first := true; first || r.InFlight() > 0; first = false {
			if _, err := r.SubmitAndWait(1, 5*time.Second); err != nil {
				return fmt.Errorf("%d results, %d notifications: %w", results, notified, err)
			}
			for ; r.Ready() > 0; r.Advance(1) {
				switch c := r.At(0); {
				case c.Notification():
					notified++
					if c.Copied() {
						copied++
					}
				case c.Res != 8000 || !c.More():
					return fmt.Errorf("%+v: %w", c, errors.Join(errors.New("not sent"), c.Err()))
				default:
					results++
				}
			}
		}
	}
	if results != 640 || notified != 640 || copied != 0 {
		return fmt.Errorf("%d results, %d notifications, %d copied of 640", results, notified, copied)
	}
	return nil
}

func limited() (*Ring, error) {
	lim := unix.Rlimit{Cur: 512 << 10, Max: 512 << 10} // room for the queues, which 6.18 charges to the user as well
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return nil, err
	}
	return New(Config{ArenaBytes: 1 << 20})
}

// Stack growth and the collector at their worst: freed objects are overwritten, and every allocation may start a cycle.
func TestKernelContentClobbered(t *testing.T) {
	testskip.IOUring(t, Probe())
	cmd := exec.Command(os.Args[0], "-test.run=^(TestKernelContent|TestKernelReceiver|TestKernelAllocs)$", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), "GODEBUG=clobberfree=1", "GOGC=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The sysctl that switches io_uring off for everybody is named, and put back. For the moment it is off, other programs of this
// machine cannot make rings; existing rings go on.
func TestKernelSysctl(t *testing.T) {
	testskip.Root(t)
	testskip.IOUring(t, Probe())
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
	probed := Probe()
	_, made := New(Config{})
	restore()
	for what, err := range map[string]error{"Probe": probed, "New": made} {
		if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "sysctl -w kernel.io_uring_disabled=0") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Probe(); err != nil {
		t.Errorf("after restoring: %v", err)
	}
}
