package mmsg

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
	"blast/internal/sys"
	"blast/internal/udpsock"
)

// Name is the value of --backend.
const Name = "sendmmsg"

const (
	// vector bounds the messages of one system call: the calls are raw ones, which must not hold a processor for long.
	vector = 64
	// defaultBatch is the number of slots of a Commit where none is asked for and no trains make more worthwhile.
	defaultBatch = 64
	// maxBatch bounds the memory of a Sender.
	maxBatch = 1 << 14
)

// Entry is the row of this backend.
func Entry() backend.Entry { return backend.Entry{Name: Name, Open: Open, Probe: Probe, Stamps: true} }

// Probe tells whether sendmmsg works here.
func Probe() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sendmmsg: %w", os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	// A message without a destination on an unconnected socket: any kernel that has the call answers EDESTADDRREQ.
	switch _, errno := sys.Sendmmsg(fd, make([]unix.Mmsghdr, 1)); errno {
	case 0, unix.EDESTADDRREQ:
		return nil
	case unix.ENOSYS, unix.EPERM:
		return fmt.Errorf("sendmmsg: %w: the kernel or a seccomp filter refuses the system call; --backend net does without: %w", errors.ErrUnsupported, errno)
	default:
		return fmt.Errorf("sendmmsg: %w", errno)
	}
}

// Open implements backend.Open.
func Open(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
	if err := check(&cfg); err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", err)
	}
	plan := udpsock.NewPlan(&cfg)
	socks := &udpsock.Sockets{}
	if err := socks.Open(&cfg, plan); err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", errors.Join(err, socks.Release()))
	}
	s := newSender(&cfg, socks, plan.Limits())
	if !cfg.Receive {
		return s, nil, nil
	}
	r, err := newReceiver(&cfg, socks, s.stamps.ArrivalClock())
	if err != nil {
		return nil, nil, fmt.Errorf("sendmmsg: %w", errors.Join(err, s.Close()))
	}
	return s, r, nil
}

func check(cfg *backend.Config) error {
	err := udpsock.Check(cfg)
	if cfg.SQPoll || cfg.ZeroCopy {
		err = errors.Join(err, errors.New("a submission thread and zero copy are switches of other backends"))
	}
	if cfg.Batch > maxBatch {
		err = errors.Join(err, fmt.Errorf("batch of %d: at most %d", cfg.Batch, maxBatch))
	}
	return err
}

// misuse is what Commit says of a caller that does not keep to the contract.
func misuse(slots, reserved int) error {
	return fmt.Errorf("sendmmsg: commit of %d slots, %d reserved", slots, reserved)
}

// fatal is what a Sender or Receiver says of an errno that ends the run.
func fatal(call string, flow int, errno syscall.Errno) error {
	return fmt.Errorf("sendmmsg: flow %d: %w", flow, os.NewSyscallError(call, errno))
}

// waiting is what a Receiver says of an error of the call it waits with.
func waiting(call string, err error) error {
	return fmt.Errorf("sendmmsg: wait for replies: %w", os.NewSyscallError(call, err))
}
