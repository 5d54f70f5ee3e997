package main

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/calib"
	"blast/internal/wire"
	"blast/tuning"
)

// throughFrames settles what is particular to backends that write frames: by which interface they may, and the veth pair of --veth, which
// end takes down.
func (f *calibrateFlags) throughFrames(cfg *calib.Config) (end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case f.veth && (f.against != "" || f.nic != ""):
		return nil, errors.New("--veth makes its own interface: leave --against and --nic out")
	case f.nic != "" && f.against == "":
		return nil, errors.New("--nic needs --against: which sink the interface leads to")
	case f.veth:
		return overVeth(cfg)
	case f.against != "":
		for i := range cfg.Candidates {
			if e := &cfg.Candidates[i].Entry; e.Name == afxdp.Name {
				*e = onlyThrough(*e, f.nic)
			}
		}
	}
	return nothing, nil
}

// onlyThrough is AF_XDP through one interface, or through none: nobody's network card gets a program unasked.
func onlyThrough(e backend.Entry, nic string) backend.Entry {
	if nic == "" {
		e.Probe = func() error {
			return fmt.Errorf("it may put an XDP program on the interface: name the interface with --nic: %w", errors.ErrUnsupported)
		}
		return e
	}
	open := e.Open
	e.Open = func(cfg backend.Config) (backend.Sender, backend.Receiver, error) {
		cfg.Interface = nic
		return open(cfg)
	}
	return e
}

// overVeth makes the pair and sends by it: each worker's thread, which ends with the trial, enters its namespace.
func overVeth(cfg *calib.Config) (end func() error, err error) {
	w, err := wire.Open(len(cfg.CPUs))
	if err != nil {
		return nil, err
	}
	const anyPort = 9
	cfg.Against, cfg.Received = netip.AddrPortFrom(w.Target(), anyPort), w.Received
	cfg.Host = tuning.Reader{}.Host(wire.Interface)
	cfg.Fingerprint = tuning.Fingerprint(cfg.Host)
	for i := range cfg.Candidates {
		if c := &cfg.Candidates[i]; c.Offload != nil {
			c.Offload = inside(w, c.Offload)
			continue
		}
		e := &cfg.Candidates[i].Entry
		open := e.Open
		e.Open = func(c backend.Config) (backend.Sender, backend.Receiver, error) {
			if err := w.Enter(); err != nil {
				return nil, nil, err
			}
			return open(c)
		}
	}
	return w.Close, nil
}

// inside opens an offload from a thread that has entered the namespace; what it opens belongs to the interface there, whoever runs it.
func inside(w *wire.Wire, open backend.OpenOffload) backend.OpenOffload {
	return func(cfgs []backend.OffloadConfig, replies *backend.ReceiverConfig) (workers []backend.Offload, receiver backend.OffloadReceiver, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends where it is
			if err = w.Enter(); err == nil {
				workers, receiver, err = open(cfgs, replies)
			}
		}()
		<-done
		return workers, receiver, err
	}
}
