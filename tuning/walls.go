package tuning

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Met is a wall that was hit at run time: what it is and what gets past it.
type Met struct {
	// Code is that of the finding of Check, or a word of its own.
	Code   string
	Name   string
	Remedy string
}

// String is one sentence for people.
func (m Met) String() string { return m.Name + "; " + m.Remedy }

// NameWall names the wall behind an error of a system call, by its errno and, where it is known (*os.SyscallError), the call; not ok
// when the errno is no sign of one. The walls are those of Check, with the numbers of this host.
func (r Reader) NameWall(err error) (Met, bool) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return Met{}, false
	}
	call := callOf(err)
	switch errno {
	case unix.EMFILE:
		return Met{"nofile", fmt.Sprintf("EMFILE: this process has all the open files it may have%s, and each flow is one", r.noFile()),
			"blast tune exec --nofile 1048576 -- blast ..."}, true
	case unix.ENFILE:
		return Met{"file-max", "ENFILE: the host has all the open files it may have, fs.file-max " + r.known("/proc/sys/fs/file-max"), "sysctl -w fs.file-max=2097152"}, true
	case unix.EADDRNOTAVAIL:
		ports := strings.Join(strings.Fields(r.known("/proc/sys/net/ipv4/ip_local_port_range")), "-")
		return Met{"ports", "EADDRNOTAVAIL: no source port is left in " + ports + " on this address, or the address is not one of this host",
			`sysctl -w net.ipv4.ip_local_port_range="1024 65535", then more addresses with --src`}, true
	case unix.EADDRINUSE:
		return Met{"ports", "EADDRINUSE: another socket has this source port", "another --src-port range, or none"}, true
	case unix.ENOBUFS, unix.ENOMEM:
		return r.memoryWall(errno, call), true
	case unix.EPERM, unix.EACCES:
		return r.permissionWall(errno, call), true
	case unix.EAGAIN:
		return Met{"wmem_max", "EAGAIN: the send buffer is full, the device or its queue is the slower one", "a lower rate, or --sndbuf with net.core.wmem_max raised"}, true
	case unix.EMSGSIZE:
		return Met{"mtu", "EMSGSIZE: larger than the path takes whole", "a smaller --payload, or --fragment"}, true
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return Met{"route", unix.ErrnoName(errno) + ": no route, or nobody answers for the next hop", "ip route get TARGET; ip neigh"}, true
	case unix.ENETDOWN, unix.ENODEV, unix.ENXIO:
		return Met{"link", unix.ErrnoName(errno) + ": the interface went down or away", "ip link set IFACE up"}, true
	case unix.EBUSY:
		return Met{"queue", "EBUSY: another AF_XDP socket or XDP program has this queue or interface", "ip link show IFACE says which program; stop it, or take another queue"}, true
	case unix.EOPNOTSUPP:
		return Met{"offload", "EOPNOTSUPP: the driver or kernel does not offer this", "blast probe says what works"}, true
	}
	return Met{}, false
}

// memoryWall tells kernel memory for sockets from locked memory by the call.
func (r Reader) memoryWall(errno unix.Errno, call string) Met {
	name := unix.ErrnoName(errno)
	if sends(call) || call == "" {
		return Met{"memory", name + ": the device's queue is full, or the kernel has no memory for more packets (net.ipv4.udp_mem " +
			strings.Join(strings.Fields(r.known("/proc/sys/net/ipv4/udp_mem")), " ") + ")", "a lower rate, a longer queue (ip link set IFACE txqueuelen 10000), or less --sndbuf"}
	}
	if l, err := r.Limits(); err == nil && !l.IPCLock {
		return Met{"memlock", fmt.Sprintf("%s in %s: locked memory, of which this process may have %s", name, call, mib(int64(min(l.Memlock, 1<<62)))), "ulimit -l unlimited, or CAP_IPC_LOCK"}
	}
	return Met{"memory", name + " in " + call + ": the kernel has no memory for it", "fewer or smaller rings and buffers (--rcvbuf, --sndbuf, --flows)"}
}

// permissionWall tells a packet that a local rule dropped from a call that needs privilege.
func (r Reader) permissionWall(errno unix.Errno, call string) Met {
	name := unix.ErrnoName(errno)
	if !sends(call) && call != "" && call != "connect" {
		return Met{"privilege", name + " in " + call + ": not allowed for this process", "run as root; blast probe names the capability"}
	}
	have, most := r.text("/proc/sys/net/netfilter/nf_conntrack_count"), r.text("/proc/sys/net/netfilter/nf_conntrack_max")
	if most == "" {
		return Met{"firewall", name + " on sending: a local firewall rule drops it", "nft list ruleset"}
	}
	return Met{"conntrack", fmt.Sprintf("%s on sending: the connection tracking table is full (%s of %s now), or a local firewall rule drops it", name, have, most),
		"sysctl -w net.netfilter.nf_conntrack_max=2097152, or a notrack rule; nft list ruleset"}
}

// sends says whether a call is one that sends packets.
func sends(call string) bool {
	return slices.Contains([]string{"sendto", "sendmsg", "sendmmsg", "write", "send"}, call)
}

// callOf finds the system call in an error, "" when it does not tell.
func callOf(err error) string {
	var s *os.SyscallError
	if errors.As(err, &s) {
		call, _, _ := strings.Cut(s.Syscall, " ")
		return call
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op
	}
	return ""
}

func (r Reader) noFile() string {
	l, err := r.Limits()
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (%s)", count(l.NoFileSoft))
}

// CauseWall names the wall behind a cause of refusals in a ledger (backend.Cause); not ok for one it does not know.
func (r Reader) CauseWall(cause string) (Met, bool) {
	errno, ok := map[string]unix.Errno{"no_buffers": unix.ENOBUFS, "permission": unix.EPERM, "message_size": unix.EMSGSIZE, "unreachable": unix.ENETUNREACH,
		"down": unix.ENETDOWN, "full": unix.EAGAIN, "invalid": unix.EOPNOTSUPP}[cause]
	if !ok {
		return Met{}, false
	}
	return r.NameWall(os.NewSyscallError("sendto", errno))
}
