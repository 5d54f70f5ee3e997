package xdp

import (
	"errors"
	"fmt"
)

// SteerPorts takes UDP packets to the ports from the kernel as [Device.AddPorts] does, but only those that arrive on the given queue.
// Packets to them that arrive on others are left to the kernel and counted as Unclaimed, even where a socket holds that queue: it would
// be the wrong one. [Device.RemovePorts] gives them back.
func (d *Device) SteerPorts(queue int, ports ...uint16) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.cfg.Receive || d.closed {
		return errors.New("xdp: the device is closed or was opened without Receive")
	}
	if queue < 0 || queue >= d.facts.queues {
		return fmt.Errorf("xdp: queue %d of %q: it has %d", queue, d.facts.name, d.facts.queues)
	}
	if err := d.program.give(ports, uint32(portFirstHome+queue)); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}
