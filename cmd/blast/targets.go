package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"blast/pace"
)

// resolve turns HOST:PORT arguments into addresses. A name with addresses of both families gives the first of the wanted family,
// IPv4 where any will do.
func resolve(ctx context.Context, targets []string, family string) ([]netip.AddrPort, error) {
	if family != "any" && family != "4" && family != "6" {
		return nil, fmt.Errorf("family %q: want any, 4 or 6", family)
	}
	var out []netip.AddrPort
	for _, t := range targets {
		host, portText, err := net.SplitHostPort(t)
		if err != nil || host == "" {
			return nil, fmt.Errorf("target %q: want HOST:PORT, such as 10.0.0.1:9000 or [::1]:9000%s", t, repair(t))
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("target %q: port %q: want a number from 1 to 65535%s", t, portText, severalPorts(host, portText))
		}
		addrs, err := lookup(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("target %q: unknown host; an address such as 10.0.0.1:%s needs no name: %w", t, portText, err)
		}
		addr, ok := pick(addrs, family)
		if !ok {
			return nil, fmt.Errorf("target %q: none of its addresses %v is IPv%s", t, addrs, family)
		}
		if err := sendable(addr); err != nil {
			return nil, fmt.Errorf("target %q: %w", t, err)
		}
		out = append(out, netip.AddrPortFrom(addr, uint16(port)))
	}
	return out, nil
}

// repair says how a target that is no HOST:PORT would be one; "" where that is anybody's guess.
func repair(t string) string {
	if _, rest, ok := strings.Cut(t, "://"); ok {
		rest, _, _ = strings.Cut(rest, "/")
		return "; write " + rest + ", without a scheme or path"
	}
	if strings.Contains(t, ",") {
		return "; write several targets with spaces between them: " + strings.ReplaceAll(t, ",", " ")
	}
	if a, err := netip.ParseAddr(strings.Trim(t, "[]")); err == nil && a.Is4() {
		return "; which port of " + t + "?"
	} else if err == nil {
		// 2001:db8::1:9000 is an address too: whether the end is a port cannot be told.
		likely := fmt.Sprintf("[%s]:PORT", a)
		if i := strings.LastIndexByte(t, ':'); !strings.HasPrefix(t, "[") && i > 0 && !strings.HasSuffix(t[:i], ":") && digits(t[i+1:]) {
			likely = fmt.Sprintf("[%s]:%s, or %s", t[:i], t[i+1:], likely)
		}
		return "; an IPv6 address stands in brackets before its port: " + likely
	}
	if host, port, err := net.SplitHostPort(t); err == nil && host == "" {
		return "; for this host: 127.0.0.1:" + port
	}
	if _, err := pace.ParseRate(t); err == nil {
		return "; a rate is given with --rate " + t
	}
	if !strings.Contains(t, ":") {
		return "; there is no port"
	}
	return ""
}

// severalPorts explains a range where a port should be.
func severalPorts(host, port string) string {
	from, to, ok := strings.Cut(port, "-")
	if !ok || !digits(from) || !digits(to) {
		return ""
	}
	return fmt.Sprintf("; name each target: %s %s ...", net.JoinHostPort(host, from), net.JoinHostPort(host, to))
}

// sendable refuses the two addresses that nobody can be sent to at.
func sendable(a netip.Addr) error {
	switch {
	case a.IsUnspecified():
		return errors.New("that is the address that servers listen on, not one to send to; this host is 127.0.0.1 or [::1]")
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("that is everybody on the network; blast does not broadcast")
	}
	return nil
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

func pick(addrs []netip.Addr, family string) (netip.Addr, bool) {
	for _, want4 := range []bool{true, false} {
		if family == "4" && !want4 || family == "6" && want4 {
			continue
		}
		if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == want4 }); i >= 0 {
			return addrs[i], true
		}
	}
	return netip.Addr{}, false
}

// public reports whether a is an address that --authorized is needed for.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast()
}

// sources parses --src and checks that every address belongs to this host: blast does not spoof.
func sources(list []string) ([]netip.Addr, error) {
	if len(list) == 0 {
		return nil, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var out []netip.Addr
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("source address %q: %w", text, err)
		}
		if !a.IsLoopback() && !slices.ContainsFunc(own, func(o net.Addr) bool {
			p, err := netip.ParsePrefix(o.String())
			return err == nil && p.Addr().Unmap() == a.Unmap().WithZone("")
		}) {
			return nil, fmt.Errorf("source address %s is not of this host; blast does not spoof (see: ip address)", a)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// portRange parses A-B or A.
func portRange(text string) (from, to uint16, err error) {
	if text == "" {
		return 0, 0, nil
	}
	a, b, ranged := strings.Cut(text, "-")
	if !ranged {
		b = a
	}
	lo, errA := strconv.ParseUint(a, 10, 16)
	hi, errB := strconv.ParseUint(b, 10, 16)
	if errA != nil || errB != nil || lo == 0 || hi < lo {
		return 0, 0, fmt.Errorf("source ports %q: want A-B with 1 <= A <= B <= 65535", text)
	}
	return uint16(lo), uint16(hi), nil
}

// cpuList parses --cpus: "2,4-7", "none" (nil, false) or "auto" (nil, true).
func cpuList(text string) (cpus []int, auto bool, err error) {
	switch text {
	case "auto":
		return nil, true, nil
	case "none":
		return nil, false, nil
	}
	for _, part := range strings.Split(text, ",") {
		a, b, ranged := strings.Cut(part, "-")
		if !ranged {
			b = a
		}
		lo, errA := strconv.Atoi(a)
		hi, errB := strconv.Atoi(b)
		if errA != nil || errB != nil || lo < 0 || hi < lo || hi > 1<<16 {
			return nil, false, fmt.Errorf("cpus %q: want a list such as 2,4-7, or auto, or none", text)
		}
		for c := lo; c <= hi; c++ {
			if slices.Contains(cpus, c) {
				return nil, false, fmt.Errorf("cpus %q: cpu %d is named twice", text, c)
			}
			cpus = append(cpus, c)
		}
	}
	return cpus, false, nil
}

// checkCPUs refuses CPUs of a list, given as text, that are not among the usable ones.
func checkCPUs(text string, list, usable []int) error {
	for _, c := range list {
		if !slices.Contains(usable, c) {
			return fmt.Errorf("cpus %q: cpu %d is not among those this process may use, %v", text, c, usable)
		}
	}
	return nil
}
