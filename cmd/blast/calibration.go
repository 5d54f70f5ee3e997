package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"blast/calib"
	"blast/stats"
	"blast/tuning"
)

// planHost reads the host and looks its calibration up.
func (f *udpFlags) planHost(p *udpPlan, _ []netip.AddrPort) error {
	p.host = tuning.Reader{}.Host(p.iface)
	if version != "" {
		p.host.Blast = version
	}
	p.profile = storedProfile(p.host, os.Stderr)
	return nil
}

// storedProfile is the calibration of this host through the interface of the run, or else the one on loopback: what the software
// path can do bounds every interface. None is no error; one that cannot be read is told on w and is as none.
func storedProfile(host stats.Host, w io.Writer) *calib.Profile {
	store, err := calib.DefaultStore()
	if err != nil {
		return nil // nowhere to keep one, so there is none
	}
	for _, h := range []stats.Host{host, tuning.Reader{}.Host(loopback)} {
		p, err := store.Load(tuning.Fingerprint(h))
		if err == nil {
			return p
		}
		if !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(w, "warning: %v; this run is judged without a ceiling. Make a new one with: blast calibrate\n", err)
			return nil
		}
	}
	return nil
}

// preferred is the backend that this host's calibration recommends, or "".
func (p *udpPlan) preferred() string {
	if p.profile == nil {
		return ""
	}
	return p.profile.Recommended.Backend
}

// calibrated adds the stored ceiling to the result.
func (p *udpPlan) calibrated(res *stats.Result) {
	if p.profile == nil {
		return
	}
	c, ok := p.profile.Ceiling(res.Backend.Name, res.Backend.GSO, p.config.PayloadBytes, p.config.Workers, p.config.Flows)
	if !ok {
		return
	}
	if res.Rate.TargetPPS > 0 {
		c.Margin = c.CeilingPPS / res.Rate.TargetPPS
	}
	res.Calibration = c
}
