package xdp

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// holder is who has a queue, as far as can be seen.
type holder struct {
	// text names the processes; empty when none is to be seen.
	text string
	// sure says that the kernel named the queue (CONFIG_XDP_SOCKETS_DIAG); otherwise text lists the processes that have any
	// AF_XDP socket in this network namespace.
	sure bool
}

// String ends a message about a busy queue.
func (h holder) String() string {
	switch {
	case h.sure:
		return "the queue is held by " + h.text
	case h.text != "":
		return "the queue is held by an AF_XDP socket; this kernel does not tell which (CONFIG_XDP_SOCKETS_DIAG); such sockets are open in " + h.text
	}
	return "the queue is held by an AF_XDP socket of a process that is not visible from here; try as root, on the host: ss --xdp -e -p"
}

// findHolder looks for who has a queue. self is a descriptor of ours that does not count.
func findHolder(ifindex, queue, self int) holder {
	own := uint64(0)
	var st unix.Stat_t
	if unix.Fstat(self, &st) == nil {
		own = st.Ino
	}
	inodes, known := socketsOn(ifindex, queue)
	if !known {
		return holder{text: strings.Join(ringMappers(own), ", ")}
	}
	delete(inodes, own)
	if len(inodes) == 0 {
		return holder{}
	}
	return holder{text: openers(inodes), sure: true}
}

// socketsOn lists the inodes of the AF_XDP sockets bound to a queue in the calling thread's namespace: sock_diag(7), with
// struct xdp_diag_req and xdp_diag_msg of include/uapi/linux/xdp_diag.h. It reports false on a kernel that cannot tell.
func socketsOn(ifindex, queue int) (map[uint64]bool, bool) {
	const (
		requestBytes = 20 // family, protocol, 2 bytes of padding, inode, show, cookie[2]
		messageBytes = 16 // family, type, 2 bytes of padding, inode, cookie[2]
		showInfo     = 1
		attrInfo     = 1 // struct xdp_diag_info: ifindex, queue_id
	)
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	body := make([]byte, requestBytes)
	body[0] = unix.AF_XDP
	binary.NativeEndian.PutUint32(body[8:], showInfo)
	req.AddRawData(body)
	msgs, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return nil, false
	}
	inodes := map[uint64]bool{}
	for _, m := range msgs {
		if len(m) < messageBytes {
			continue
		}
		inode := binary.NativeEndian.Uint32(m[4:])
		attrs, err := nl.ParseRouteAttr(m[messageBytes:])
		if err != nil {
			continue
		}
		for _, a := range attrs {
			if a.Attr.Type == attrInfo && len(a.Value) >= 8 &&
				binary.NativeEndian.Uint32(a.Value) == uint32(ifindex) && binary.NativeEndian.Uint32(a.Value[4:]) == uint32(queue) {
				inodes[uint64(inode)] = true
			}
		}
	}
	return inodes, true
}

// openers names the processes that have one of the sockets open.
func openers(inodes map[uint64]bool) string {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, path := range fds {
		target, err := os.Readlink(path)
		if err != nil {
			continue
		}
		if inode, ok := socketInode(target); ok && inodes[inode] {
			return process(strings.Split(path, "/")[2])
		}
	}
	return "a process that is not visible from here"
}

// ringMappers names the processes of this network namespace that have mapped the completion ring of an AF_XDP socket other than own.
// The offset of the mapping, XDP_UMEM_PGOFF_COMPLETION_RING, tells such a socket from any other.
func ringMappers(own uint64) []string {
	files, err := filepath.Glob("/proc/[0-9]*/maps")
	if err != nil {
		return nil
	}
	home, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil
	}
	var names []string
	for _, path := range files {
		pid := strings.Split(path, "/")[2]
		// The threads of this very process may be in any namespace.
		if ns, err := os.Readlink("/proc/" + pid + "/ns/net"); pid != strconv.Itoa(os.Getpid()) && (err != nil || ns != home) {
			continue
		}
		maps, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(maps)) {
			fields := strings.Fields(line) // address, permissions, offset, device, inode, name
			if len(fields) < 6 || fields[2] != strconv.FormatInt(unix.XDP_UMEM_PGOFF_COMPLETION_RING, 16) {
				continue
			}
			if inode, ok := socketInode(fields[5]); ok && inode != own {
				names = append(names, process(pid))
				break
			}
		}
	}
	return names
}

// socketInode reads "socket:[12345]".
func socketInode(s string) (uint64, bool) {
	s, found := strings.CutPrefix(s, "socket:[")
	if !found {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n, err == nil
}

// process names a process.
func process(pid string) string {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "process " + pid
	}
	name := fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(comm)))
	if pid == strconv.Itoa(os.Getpid()) {
		name += ", this one"
	}
	return name
}
