package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"blast/backend"
	"blast/backend/afxdp"
	"blast/backend/iouring"
	"blast/backend/mmsg"
	"blast/backend/netudp"
	"blast/backend/xdplive"
)

// backends is the one table of send paths, in the order in which auto prefers them. A further backend is one folder and one row.
func backends() []backend.Entry {
	return []backend.Entry{mmsg.Entry(), iouring.Entry(), netudp.Entry(), afxdp.Entry()}
}

// offloads is the table of the send paths that execute the plan themselves. auto never takes one: it puts programs on the interface and
// keeps a core inside the kernel, which is for somebody who named it.
func offloads() []backend.OffloadEntry { return []backend.OffloadEntry{xdplive.Entry()} }

func offloadNames() string {
	var names []string
	for _, o := range offloads() {
		names = append(names, o.Name)
	}
	return strings.Join(names, ", ")
}

// aboutOffloads says why auto left out the offloads that could carry the flows.
func aboutOffloads(flows []backend.Flow) string {
	for _, o := range offloads() {
		if o.Probe() == nil && o.Reach(flows) == nil {
			return fmt.Sprintf("; not %s, which could: it puts programs on the interface and keeps a core inside the kernel, so name it", o.Name)
		}
	}
	return ""
}

// chooseOffload returns the offload of that name, nil when there is none, and an error when it cannot carry the flows here.
func chooseOffload(name string, flows []backend.Flow) (*backend.OffloadEntry, error) {
	for _, o := range offloads() {
		if o.Name != name {
			continue
		}
		err := o.Probe()
		if err == nil {
			err = o.Reach(flows)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("backend %s cannot run here: %w", name, err)
		}
		return &o, nil
	}
	return nil, nil
}

// choose returns the backend of that name, or for "auto" the preferred one that works, with the reason.
func choose(name, preferred string) (backend.Entry, string, error) {
	return chooseFrom(backends(), name, preferred)
}

func chooseFrom(table []backend.Entry, name, preferred string) (backend.Entry, string, error) {
	if name == "auto" {
		return chooseAuto(table, preferred)
	}
	var names []string
	for _, b := range table {
		if b.Name == name {
			if err := b.Probe(); errors.Is(err, errors.ErrUnsupported) {
				return b, "", fmt.Errorf("backend %s cannot run here: %w", name, err)
			}
			return b, "", nil
		}
		names = append(names, b.Name)
	}
	return backend.Entry{}, "", fmt.Errorf("backend %q: want auto, %s, %s", name, strings.Join(names, ", "), offloadNames())
}

// chooseAuto prefers what the calibration of this host recommends, then the order of the table. It never falls back silently.
func chooseAuto(table []backend.Entry, preferred string) (backend.Entry, string, error) {
	var why []string
	if i := slices.IndexFunc(table, func(b backend.Entry) bool { return b.Name == preferred }); i > 0 {
		table = slices.Concat(table[i:i+1], table[:i], table[i+1:])
	}
	for _, b := range table {
		err := b.Probe()
		if err == nil {
			reason := "it works here and no calibration says otherwise"
			switch preferred {
			case "":
			case b.Name:
				reason = "this host's calibration recommends it"
			default:
				reason = "it is the first of the others that works here"
			}
			return b, strings.Join(append(why, reason), "; "), nil
		}
		why = append(why, fmt.Sprintf("not %s: %s", b.Name, strings.TrimSuffix(err.Error(), ": "+errors.ErrUnsupported.Error())))
	}
	return backend.Entry{}, "", fmt.Errorf("no backend works here: %s", strings.Join(why, "; "))
}
