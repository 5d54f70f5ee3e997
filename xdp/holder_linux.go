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

// findHolder says which process has an AF_XDP socket on a queue, or returns "" when none can be seen: the kernel may lack
// CONFIG_XDP_SOCKETS_DIAG, and processes of other users or containers are hidden. self is a descriptor that does not count.
func findHolder(ifindex, queue, self int) string {
	inodes := socketsOn(ifindex, queue)
	var own unix.Stat_t
	if unix.Fstat(self, &own) == nil {
		delete(inodes, own.Ino)
	}
	if len(inodes) == 0 {
		return ""
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, path := range fds {
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		inode, err := strconv.ParseUint(strings.Trim(target, "socket:[]"), 10, 64)
		if err != nil || !inodes[inode] {
			continue
		}
		pid := strings.Split(path, "/")[2]
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue
		}
		return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(comm)))
	}
	return "a process that is not visible from here"
}

// socketsOn lists the inodes of the AF_XDP sockets bound to a queue in the calling thread's namespace: sock_diag(7), with
// struct xdp_diag_req and xdp_diag_msg of include/uapi/linux/xdp_diag.h.
func socketsOn(ifindex, queue int) map[uint64]bool {
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
		return nil
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
	return inodes
}
