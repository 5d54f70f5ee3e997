package udpsock

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"

	"blast/backend"
)

// connected are the connected UDP sockets of this thread's network namespace: what another worker, or another blast, already uses.
// Sharing a source port is allowed, because one port may serve several targets on several workers; sharing port and target is not,
// because the replies of both would go to one of them.
func connected() (map[backend.Flow]bool, error) {
	taken := make(map[backend.Flow]bool)
	for _, name := range []string{"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"} {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) && name == "/proc/thread-self/net/udp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		err = readTable(f, taken)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return taken, nil
}

// readTable reads what udp4_format_sock and udp6_sock_seq_show (net/ipv4/udp.c, net/ipv6/udp.c) write: local and remote address are
// the second and third word of a line, as hexadecimal words in the machine's order, a colon and the port.
func readTable(r io.Reader, taken map[backend.Flow]bool) error {
	lines := bufio.NewScanner(r)
	for head := true; lines.Scan(); head = false {
		words := bytes.Fields(lines.Bytes())
		if head || len(words) < 3 {
			continue
		}
		local, err := tableAddr(words[1])
		if err != nil {
			return err
		}
		remote, err := tableAddr(words[2])
		if err != nil {
			return err
		}
		if remote.Port() != 0 {
			taken[backend.Flow{Src: local, Dst: remote}] = true
		}
	}
	return lines.Err()
}

func tableAddr(word []byte) (netip.AddrPort, error) {
	addr, port, _ := bytes.Cut(word, []byte{':'})
	var raw [16]byte
	n, err := hex.Decode(raw[:], addr[:min(len(addr), 32)])
	if err != nil || n != 4 && n != 16 {
		return netip.AddrPort{}, fmt.Errorf("address %q", word)
	}
	for i := 0; i < n; i += 4 { // printed as a number each, so most significant byte first
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	p, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", word, err)
	}
	a, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), nil
}

// bare is an address as the table has it: IPv4 where it can be, without a zone.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
