//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import (
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"blast/internal/sys"
)

// oldKernel is a double of io_uring_setup(2) that refuses flags newer than its release and asks the real kernel otherwise.
func oldKernel(known SetupFlags) setupFunc {
	return func(entries uint32, p *sys.URingParams) (int, error) {
		if SetupFlags(p.Flags)&^known != 0 {
			return -1, syscall.EINVAL
		}
		return sys.URingSetup(entries, p)
	}
}

const (
	known511 = SQPoll | SQAff | CQSize
	known518 = known511 | SubmitAll
	known519 = known518 | CoopTaskrun
	known60  = known519 | SingleIssuer
	known61  = known60 | DeferTaskrun
	known66  = known61 | NoSQArray
)

// Each release gets the best set it knows, and the ring works there: sixteen queues full of NOPs come back in order.
func TestKernelLadder(t *testing.T) {
	for _, tc := range []struct {
		kernel  string
		known   SetupFlags
		cfg     Config
		want    SetupFlags
		refused int
	}{
		{"6.6", known66, Config{}, CQSize | SubmitAll | SingleIssuer | DeferTaskrun | NoSQArray, 0},
		{"6.1", known61, Config{}, CQSize | SubmitAll | SingleIssuer | DeferTaskrun, 1},
		{"6.0", known60, Config{}, CQSize | SubmitAll | SingleIssuer | CoopTaskrun, 2},
		{"5.19", known519, Config{}, CQSize | SubmitAll | CoopTaskrun, 3},
		{"5.18", known518, Config{}, CQSize | SubmitAll, 4},
		{"5.11", known511, Config{}, CQSize, 5},
		{"bare", 0, Config{Avoid: CQSize}, 0, 5},
		{"6.6 with flags avoided", known66, Config{Avoid: NoSQArray | SingleIssuer}, CQSize | SubmitAll, 0},
		{"6.6 polling", known66, Config{SQPoll: true}, SQPoll | CQSize | SubmitAll | SingleIssuer | NoSQArray, 0},
		{"5.11 polling", known511, Config{SQPoll: true}, SQPoll | CQSize, 3},
	} {
		t.Run(tc.kernel, func(t *testing.T) {
			cfg := tc.cfg
			cfg.Entries = 8
			r := testRing(t, cfg, oldKernel(tc.known))
			g := r.Granted()
			if tc.cfg.SQPoll && g.Flags&SingleIssuer == 0 {
				tc.want &^= SingleIssuer // a kernel may write back that it is of no use then
			}
			if g.Flags != tc.want || len(g.Refused) != tc.refused || g.SQEntries != 8 || g.CQEntries != 16 {
				t.Fatalf("granted %v", g)
			}
			next := uint64(0)
			for sent := uint64(0); next < 128; {
				for sent < 128 {
					s := r.SQE()
					if s == nil {
						break
					}
					s.PrepNop()
					s.UserData = sent
					sent++
				}
				submitAndWait(t, r, 1)
				var cqes [5]CQE
				for n := r.Completions(cqes[:]); n > 0; n = r.Completions(cqes[:]) {
					for _, c := range cqes[:n] {
						if c.UserData != next || c.Res != 0 {
							t.Fatalf("completion %+v, want number %d", c, next)
						}
						next++
					}
				}
			}
			if c := r.Counters(); c.Dropped != 0 || c.Lost != 0 || c.Submitted != 128 {
				t.Fatalf("%+v", c)
			}
		})
	}
}

// Errors other than EINVAL end the climb at once: trying on would hide the reason.
func TestLadderStopsOnOtherErrors(t *testing.T) {
	calls := 0
	_, err := newRing(Config{}, func(uint32, *sys.URingParams) (int, error) { calls++; return -1, syscall.ENOMEM })
	if calls != 1 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%d calls, %v", calls, err)
	}
	calls = 0
	_, err = newRing(Config{}, func(uint32, *sys.URingParams) (int, error) { calls++; return -1, syscall.EINVAL })
	if calls != len(ladder(Config{}.withDefaults())) || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// A kernel without a feature the package needs is named as too old, and nothing leaks.
func TestKernelFeatureMissing(t *testing.T) {
	before := openFDs(t)
	_, err := newRing(Config{}, func(n uint32, p *sys.URingParams) (int, error) {
		fd, err := sys.URingSetup(n, p)
		p.Features &^= sys.IORING_FEAT_EXT_ARG
		return fd, err
	})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "EXT_ARG") || !strings.Contains(err.Error(), "5.11") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(before, openFDs(t)); diff != "" {
		t.Errorf("descriptors leaked:\n%s", diff)
	}
}

// The flags the kernel always refuses together are never asked for together.
func TestLadderCombinations(t *testing.T) {
	for avoid := range SetupFlags(1 << 17) {
		if avoid&^(SubmitAll|CoopTaskrun|SingleIssuer|DeferTaskrun|NoSQArray|CQSize) != 0 {
			continue
		}
		for _, poll := range []bool{false, true} {
			cfg := Config{SQPoll: poll, SQPollPin: poll, Avoid: avoid}.withDefaults()
			for _, f := range ladder(cfg) {
				switch {
				case f&DeferTaskrun != 0 && f&SingleIssuer == 0:
					t.Fatalf("avoid %v: %v", avoid, f)
				case f&SQPoll != 0 && f&(DeferTaskrun|CoopTaskrun) != 0:
					t.Fatalf("avoid %v: %v", avoid, f)
				case f&avoid != 0:
					t.Fatalf("avoid %v: %v", avoid, f)
				case poll != (f&SQPoll != 0):
					t.Fatalf("poll %v: %v", poll, f)
				}
			}
		}
	}
}

// Every way to be locked out has its own text with the command that helps.
func TestExplain(t *testing.T) {
	free := facts{release: "6.18", disabled: 0, memlock: math.MaxUint64, memHard: math.MaxUint64, nofile: 1024, nofHard: 4096}
	with := func(fn func(*facts)) facts { f := free; fn(&f); return f }
	for _, tc := range []struct {
		name        string
		errno       syscall.Errno
		cfg         Config
		f           facts
		unsupported bool
		says        []string
	}{
		{"sysctl 2", syscall.EPERM, Config{}, with(func(f *facts) { f.disabled = 2; f.sysAdmin = true }), true, []string{"kernel.io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"}},
		{"sysctl 1 without privilege", syscall.EPERM, Config{}, with(func(f *facts) { f.disabled = 1 }), true, []string{"kernel.io_uring_disabled is 1", "io_uring_group"}},
		{"sysctl 1 does not matter to members", syscall.EPERM, Config{}, with(func(f *facts) { f.disabled = 1; f.inGroup = true; f.seccomp = 2 }), true, []string{"seccomp"}},
		{"seccomp", syscall.EPERM, Config{}, with(func(f *facts) { f.seccomp = 2 }), true, []string{"seccomp", "io_uring_enter"}},
		{"seccomp with another errno", syscall.EACCES, Config{}, with(func(f *facts) { f.seccomp = 2 }), true, []string{"seccomp"}},
		{"seccomp that plays an old kernel", syscall.ENOSYS, Config{}, with(func(f *facts) { f.seccomp = 2 }), true, []string{"seccomp", "CONFIG_IO_URING"}},
		{"old kernel", syscall.ENOSYS, Config{}, free, true, []string{"has no io_uring", "5.11"}},
		{"polling without privilege", syscall.EPERM, Config{SQPoll: true}, with(func(f *facts) { f.disabled = -1; f.release = "5.12" }), true, []string{"SQPOLL", "CAP_SYS_NICE", "setcap"}},
		{"security module", syscall.EPERM, Config{}, free, true, []string{"security module", "audit"}},
		{"memlock of an old kernel", syscall.ENOMEM, Config{Entries: 4096, CQEntries: 8192}, with(func(f *facts) { f.memlock = 65536; f.memHard = 65536 }), true, []string{"RLIMIT_MEMLOCK", "393216", "65536", "ulimit -l 384"}},
		{"memlock met by other processes", syscall.ENOMEM, Config{Entries: 8, CQEntries: 16}, with(func(f *facts) { f.memlock = 65536 }), true, []string{"all processes of the user", "ulimit -l unlimited"}},
		{"capability lifts the limit, so it is plainly memory", syscall.ENOMEM, Config{Entries: 4096, CQEntries: 8192}, with(func(f *facts) { f.memlock = 1; f.ipcLock = true }), false, []string{"no limit of locked memory is in the way"}},
		{"descriptors used up", syscall.EMFILE, Config{}, free, false, []string{"1024", "4096", "ulimit -n 2048"}},
		{"pinned to a CPU that is not there", syscall.EINVAL, Config{SQPoll: true, SQPollPin: true, SQPollCPU: 99}, free, false, []string{"CPU 99"}},
	} {
		err := explainSetup(tc.errno, tc.cfg, tc.f)
		if errors.Is(err, errors.ErrUnsupported) != tc.unsupported || !errors.Is(err, tc.errno) {
			t.Errorf("%s: classified wrongly: %v", tc.name, err)
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", tc.name, err, s)
			}
		}
	}
}

// The capability is looked at before the limit, and both numbers are told.
func TestLockable(t *testing.T) {
	f := facts{ipcLock: true, memlock: 0}
	if err := f.lockable("x", 1<<40, nil); err != nil {
		t.Errorf("with the capability: %v", err)
	}
	f.ipcLock, f.memlock, f.memHard = false, 8<<20, math.MaxUint64
	if err := f.lockable("x", 8<<20, nil); err != nil {
		t.Errorf("exactly the limit: %v", err)
	}
	err := f.lockable("zero-copy sends", 8<<20+1, nil)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "8388609") || !strings.Contains(err.Error(), "8388608") || !strings.Contains(err.Error(), "ulimit -l 8193") {
		t.Errorf("one byte over: %v", err)
	}
}
