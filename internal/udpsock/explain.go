package udpsock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"blast/backend"
)

// Explain says what an error of opening one flow's socket means for the one who asked for the flow.
func Explain(cfg *backend.Config, flow int, err error) error {
	var errno syscall.Errno
	errors.As(err, &errno)
	f := cfg.Flows[flow]
	switch errno {
	case unix.EADDRNOTAVAIL:
		return fmt.Errorf("flow %d: source address %v is not an address of this host: %w", flow, f.Src.Addr(), err)
	case unix.EADDRINUSE:
		if f.Src.Port() == 0 {
			return fmt.Errorf("flow %d: no free source port to %v (net.ipv4.ip_local_port_range): %w", flow, f.Dst, err)
		}
		return fmt.Errorf("flow %d: source port %d is in use: %w", flow, f.Src.Port(), err)
	case unix.EAGAIN:
		return fmt.Errorf("flow %d: no free source port to %v (net.ipv4.ip_local_port_range): %w", flow, f.Dst, err)
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return fmt.Errorf("flow %d: no route to %v: %w", flow, f.Dst.Addr(), err)
	case unix.EMFILE:
		return fmt.Errorf("flow %d: %s: %w", flow, fileLimit(len(cfg.Flows)), err)
	case unix.ENFILE:
		return fmt.Errorf("flow %d: the host's limit of open files is reached (fs.file-max): %w", flow, err)
	}
	return fmt.Errorf("flow %d, %v to %v: %w", flow, f.Src, f.Dst, err)
}

func fileLimit(flows int) string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Sprintf("too many open files for %d flows", flows)
	}
	const spare = 64 // standard files, epoll, the runtime's own
	return fmt.Sprintf("%d open files are allowed, %d flows of this worker need about %d in a process of their own (ulimit -n)",
		r.Cur, flows, flows+spare)
}

// ErrClosed is returned by a Sender or Receiver used after Close.
var ErrClosed = fmt.Errorf("socket backend: %w", os.ErrClosed)
