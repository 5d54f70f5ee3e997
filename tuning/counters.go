package tuning

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"blast/stats"
)

// Snapshot is the state of the kernel's packet counters at one moment. They belong to the whole network namespace or
// interface, softnet's to the whole machine: what other programs send there is counted as well.
type Snapshot struct {
	// Conntrack is how full the connection tracking table is; Max 0 = no tracking here.
	Conntrack Conntrack

	values []value
	index  map[string]int // by name, into values
}

// Conntrack is the use of the connection tracking table, in entries. A full one drops new flows.
type Conntrack struct{ Count, Max uint64 }

// value is one counter; bits is the width at which the kernel's counter wraps.
type value struct {
	name string
	n    uint64
	bits int
}

// Counters reads the counters of the calling thread's network namespace and of the named interfaces in it:
//
//	udp. udp6.   OutDatagrams InDatagrams SndbufErrors RcvbufErrors NoPorts InErrors MemErrors (/proc/net/snmp, snmp6)
//	ip. ip6.     OutDiscards
//	IFACE.       tx_packets tx_dropped tx_errors rx_packets rx_dropped rx_errors (/proc/net/dev), rx_missed (sysfs).
//	             The kernel adds missed packets into the drops of /proc/net/dev: rx_missed is a part of rx_dropped.
//	softnet.     dropped time_squeeze, all CPUs together (/proc/net/softnet_stat)
//	conntrack.   count (entries, a level), drop early_drop insert_failed (/proc/net/stat/nf_conntrack)
//
// What this kernel does not have (IPv6, conntrack, an older kernel's missing field) is left out without an error. On an
// error, such as an interface that is not there, the snapshot holds all that could be read and is still good for Delta.
func (r Reader) Counters(ifaces ...string) (Snapshot, error) {
	s := Snapshot{index: make(map[string]int)}
	var errs []error
	errs = append(errs, s.readSNMP(r), s.readSNMP6(r))
	tfs, err := r.threadFS()
	if err != nil {
		return s, errors.Join(append(errs, fmt.Errorf("network counters: %w", err))...)
	}
	errs = append(errs, s.readDev(r, tfs, ifaces), s.readSoftnet(tfs))
	s.readConntrack(r, tfs)
	return s, errors.Join(errs...)
}

// Delta returns how far each counter went between s and the later snapshot, in a fixed order, for those that both hold.
// Counters that did not move are in it with 0, so that "did not move" and "could not be read" stay apart.
func (s Snapshot) Delta(later Snapshot) []stats.Counter {
	var (
		out     []stats.Counter
		softnet = map[string]int{} // position in out of the sums over the CPUs
	)
	for _, now := range later.values {
		i, ok := s.index[now.name]
		if !ok {
			continue
		}
		d := int64(now.n - s.values[i].n)
		if now.bits == 32 {
			// softnet's counters are 32 bits wide and wrap; between two readings they only grow.
			d = int64(uint32(now.n) - uint32(s.values[i].n))
		}
		name, cpu, perCPU := strings.Cut(now.name, "@")
		if at, seen := softnet[name]; perCPU && seen {
			out[at].Delta += d
			continue
		}
		if perCPU && cpu != "" {
			softnet[name] = len(out)
		}
		out = append(out, stats.Counter{Name: name, Delta: d})
	}
	return out
}

func (s *Snapshot) add(name string, n uint64) { s.put(value{name: name, n: n, bits: 64}) }

func (s *Snapshot) put(v value) {
	s.index[v.name] = len(s.values)
	s.values = append(s.values, v)
}

// udpFields are the fields of UDP's MIB that explain a datagram's fate (include/uapi/linux/snmp.h, net/ipv4/proc.c).
func udpFields() []string {
	return []string{"OutDatagrams", "InDatagrams", "SndbufErrors", "RcvbufErrors", "NoPorts", "InErrors", "MemErrors"}
}

// readSNMP reads pairs of lines, names and values, each with its protocol in front. procfs has this file too, but only
// by process number (not by thread) and as floating point, which is not exact above 2^53.
func (s *Snapshot) readSNMP(r Reader) error {
	text, err := os.ReadFile(r.path("/proc/thread-self/net/snmp"))
	if err != nil {
		return fmt.Errorf("network counters: %w", err)
	}
	table := map[string]string{}
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(names) != len(values) || names[0] != values[0] {
			return fmt.Errorf("network counters: snmp: line %d does not match its heading", i+2)
		}
		for j, name := range names[1:] {
			table[strings.TrimSuffix(names[0], ":")+name] = values[j+1]
		}
	}
	return s.addMIB("snmp", table, "Udp", "Ip", "udp.", "ip.")
}

// readSNMP6 reads one "name value" per line. Without IPv6 there is no such file.
func (s *Snapshot) readSNMP6(r Reader) error {
	text, err := os.ReadFile(r.path("/proc/thread-self/net/snmp6"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network counters: %w", err)
	}
	table := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			table[f[0]] = f[1]
		}
	}
	return s.addMIB("snmp6", table, "Udp6", "Ip6", "udp6.", "ip6.")
}

func (s *Snapshot) addMIB(file string, table map[string]string, udp, ip, udpName, ipName string) error {
	add := func(key, name string) error {
		text, ok := table[key]
		if !ok {
			return nil // such as MemErrors before kernel 5.12
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("network counters: %s: %s: %w", file, key, err)
		}
		s.add(name, n)
		return nil
	}
	var errs []error
	for _, f := range udpFields() {
		errs = append(errs, add(udp+f, udpName+f))
	}
	return errors.Join(append(errs, add(ip+"OutDiscards", ipName+"OutDiscards"))...)
}

func (s *Snapshot) readDev(r Reader, tfs procfs.FS, ifaces []string) error {
	if len(ifaces) == 0 {
		return nil
	}
	devs, err := tfs.NetDev()
	if err != nil {
		return fmt.Errorf("interface counters: %w", err)
	}
	var errs []error
	for _, iface := range ifaces {
		d, ok := devs[iface]
		if !ok {
			errs = append(errs, fmt.Errorf("interface counters: no interface %q", iface))
			continue
		}
		s.add(iface+".tx_packets", d.TxPackets)
		s.add(iface+".tx_dropped", d.TxDropped)
		s.add(iface+".tx_errors", d.TxErrors)
		s.add(iface+".rx_packets", d.RxPackets)
		s.add(iface+".rx_dropped", d.RxDropped)
		s.add(iface+".rx_errors", d.RxErrors)
		if dir, ok := r.netDir(iface); ok {
			if n, err := strconv.ParseUint(r.text(dir+"/statistics/rx_missed_errors"), 10, 64); err == nil {
				s.add(iface+".rx_missed", n)
			}
		}
	}
	return errors.Join(errs...)
}

// readSoftnet keeps the CPUs apart as "name@cpu", because each one's counter wraps by itself; Delta adds them up.
func (s *Snapshot) readSoftnet(tfs procfs.FS) error {
	rows, err := tfs.NetSoftnetStat()
	if err != nil {
		return fmt.Errorf("softnet counters: %w", err)
	}
	for _, row := range rows {
		s.put(value{name: fmt.Sprintf("softnet.dropped@%d", row.Index), n: uint64(row.Dropped), bits: 32})
		s.put(value{name: fmt.Sprintf("softnet.time_squeeze@%d", row.Index), n: uint64(row.TimeSqueezed), bits: 32})
	}
	return nil
}

// readConntrack reads what is there: the module may not be loaded, and the statistics may not be compiled in.
// /proc/sys/net is looked up in the namespace of the calling thread (net/sysctl_net.c).
func (s *Snapshot) readConntrack(r Reader, tfs procfs.FS) {
	count, err := strconv.ParseUint(r.text("/proc/sys/net/netfilter/nf_conntrack_count"), 10, 64)
	limit, err2 := strconv.ParseUint(r.text("/proc/sys/net/netfilter/nf_conntrack_max"), 10, 64)
	if err == nil && err2 == nil {
		s.Conntrack = Conntrack{Count: count, Max: limit}
		s.add("conntrack.count", count)
	}
	rows, err := tfs.ConntrackStat()
	if err != nil {
		return
	}
	// The kernel prints each CPU's counter as 32 bits (%08x); a row a CPU, in order.
	for cpu, row := range rows {
		for _, c := range []struct {
			name string
			n    uint64
		}{{"drop", row.Drop}, {"early_drop", row.EarlyDrop}, {"insert_failed", row.InsertFailed}} {
			s.put(value{name: fmt.Sprintf("conntrack.%s@%d", c.name, cpu), n: c.n, bits: 32})
		}
	}
}

// BoundUDP are the local UDP ports that sockets of the calling thread's network namespace have, on any address.
func (r Reader) BoundUDP() (map[uint16]bool, error) {
	tfs, err := r.threadFS()
	if err != nil {
		return nil, fmt.Errorf("bound ports: %w", err)
	}
	out := map[uint16]bool{}
	for _, read := range []func() (procfs.NetUDP, error){tfs.NetUDP, tfs.NetUDP6} {
		sockets, err := read()
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("bound ports: %w", err)
		}
		for _, s := range sockets {
			out[uint16(s.LocalPort)] = true
		}
	}
	return out, nil
}
