package xdp

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Probe says whether AF_XDP will work on an interface of the calling thread's namespace: nil, it will; wrapping
// errors.ErrUnsupported, it will not, and the text says what is missing and what to do; any other error, it could not tell.
// An empty name asks about the kernel and the privileges alone. It binds nothing and attaches nothing.
func Probe(name string) error {
	fd, err := open()
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: %w", requireCaps("AF_XDP", capNetRaw), errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if err := requireCaps("XDP program (for receiving and for zero-copy)", capNetAdmin, capBPF); err != nil {
		return fmt.Errorf("xdp: %w: %w", err, errors.ErrUnsupported)
	}
	p, err := loadProgram(1, false)
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w; BPF is forbidden here although the capabilities are present (a container's seccomp filter or a lockdown?): %w",
				err, errors.ErrUnsupported)
		}
		return fmt.Errorf("xdp: %w", err)
	}
	if err := p.close(); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if name == "" {
		return nil
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("xdp: netlink: %w", err)
	}
	defer h.Close()
	f, err := inspect(h, name)
	if err == nil {
		err = f.suitable(h)
	}
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENODEV) {
		err = fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}
