package udpsock

import (
	"errors"
	"fmt"

	"blast/backend"
)

// MaxPayload is the largest UDP payload of IPv4: 65535 less 20 bytes of IP and 8 of UDP header. IPv6 would take 20 bytes more.
const MaxPayload = 65507

// Check returns everything about cfg that no socket backend could honour, joined; nil when there is nothing.
func Check(cfg *backend.Config) error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(len(cfg.Flows) == 0, "no flows")
	refuse(cfg.PayloadBytes < 0 || cfg.PayloadBytes > MaxPayload, "payload of %d bytes: UDP takes 0 to %d", cfg.PayloadBytes, MaxPayload)
	refuse(cfg.Batch < 0, "batch of %d", cfg.Batch)
	refuse(cfg.GSO < 0, "trains of %d", cfg.GSO)
	refuse(cfg.SendBuffer < 0 || cfg.ReceiveBuffer < 0, "socket buffers of %d and %d bytes", cfg.SendBuffer, cfg.ReceiveBuffer)
	refuse(cfg.Receive && cfg.Now == nil, "receiving needs a clock")
	refuse(cfg.Stamps && cfg.Now == nil, "stamps need a clock")
	refuse(cfg.GRO && !cfg.Receive, "UDP_GRO without receiving")
	refuse(cfg.KernelStamp && !cfg.Receive, "kernel receive times without receiving")
	refuse(cfg.Interface != "", "interface %q: sockets leave the choice to the route", cfg.Interface)
	refuse(cfg.Queue != 0, "queue %d: sockets leave the choice to the kernel", cfg.Queue)
	seen := make(map[backend.Flow]int, len(cfg.Flows))
	for i, f := range cfg.Flows {
		refuse(!f.Dst.IsValid() || f.Dst.Port() == 0, "flow %d: destination %v has no address or port", i, f.Dst)
		refuse(f.Src.Addr().IsValid() && f.Src.Addr().Unmap().Is4() != f.Dst.Addr().Unmap().Is4(),
			"flow %d: source %v and destination %v are of different address families", i, f.Src, f.Dst)
		if f.Src.Port() == 0 {
			continue // each such flow gets a port of its own
		}
		if first, ok := seen[f]; ok {
			refuse(true, "flow %d: the same as flow %d (%v to %v); replies could not be told apart", i, first, f.Src, f.Dst)
		}
		seen[f] = i
	}
	return errors.Join(errs...)
}
