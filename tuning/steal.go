package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// tick is the unit of /proc/stat in ns: USER_HZ is 100 on every architecture that Go runs on (proc(5), times(2)).
const tick = 10_000_000

// StealMeter tells how much CPU time was taken away from a set of CPUs: stolen by the hypervisor, or withheld from this
// process by a cgroup's quota. It is for one goroutine. Between Start and Close it holds its files open; a Read re-reads the
// head of /proc/stat and the cpu.stat of each cgroup level, without allocating.
type StealMeter struct {
	r    Reader
	cpus []int // ascending, each once

	stat   *os.File
	groups []throttle
	buf    []byte

	seen   []bool // by position in cpus: found in the reading being parsed
	total  uint64 // all time of the CPUs at the last reading, ticks
	stolen uint64 // of it stolen, ticks
	held   uint64 // throttled time of the cgroup levels, ns
}

// throttle is the open cpu.stat of one cgroup level.
type throttle struct {
	file *os.File
	// key starts the line with the throttled time, unit is its unit in ns.
	key  []byte
	unit uint64
}

// StealMeter makes a meter over the given CPUs, normally those that the workers are pinned to. Start it before reading.
func (r Reader) StealMeter(cpus []int) *StealMeter {
	own := slices.Clone(cpus)
	slices.Sort(own)
	own = slices.Compact(own)
	return &StealMeter{r: r, cpus: own, seen: make([]bool, len(own))}
}

// Start opens the files and takes the first reading. It fails when /proc/stat cannot be read or lacks one of the CPUs; that
// no cgroup rations this process is not a failure. A meter that is started again starts over.
func (m *StealMeter) Start() error {
	if err := m.Close(); err != nil {
		return err
	}
	if len(m.cpus) == 0 {
		return errors.New("steal: no CPUs named")
	}
	stat, err := os.Open(m.r.path("/proc/stat"))
	if err != nil {
		return fmt.Errorf("steal: %w", err)
	}
	m.stat = stat
	if m.buf == nil {
		m.buf = make([]byte, 4096)
	}
	for _, g := range m.r.cpuGroups() {
		if err := m.open(g); err != nil {
			return errors.Join(err, m.Close())
		}
	}
	m.total, m.stolen, m.held, err = m.read()
	if err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// open keeps the cpu.stat of a level that counts throttled time; the root group does not.
func (m *StealMeter) open(g cpuGroup) error {
	f, err := os.Open(m.r.path(g.dir + "/cpu.stat"))
	if err != nil {
		return nil // not visible from here, so it cannot be known
	}
	t := throttle{file: f, key: []byte("throttled_time "), unit: 1}
	if g.v2 {
		t.key, t.unit = []byte("throttled_usec "), 1000
	}
	text, err := m.pread(f)
	if err != nil {
		return errors.Join(fmt.Errorf("steal: %w", err), f.Close())
	}
	if _, ok := valueOf(text, t.key); !ok {
		return f.Close()
	}
	m.groups = append(m.groups, t)
	return nil
}

// Close closes the files. It may be called more than once, and before Start.
func (m *StealMeter) Close() error {
	var errs []error
	if m.stat != nil {
		errs = append(errs, m.stat.Close())
	}
	for _, g := range m.groups {
		errs = append(errs, g.file.Close())
	}
	m.stat, m.groups = nil, m.groups[:0]
	return errors.Join(errs...)
}

// Read returns the share (0..1) of the CPUs' time that was lost since the last Read, or Start:
//
//	(stolen + throttled) / (user + nice + system + idle + iowait + irq + softirq + stolen)
//
// over all of them together. Throttled time is the cgroup's, summed over its CPUs and levels by the kernel: what was withheld
// on other CPUs is counted too, so the share errs on the side of too much, and stops at 1. The kernel books a throttled period
// when it ends. Time is counted in ticks of 10 ms; an interval in which no tick passed reads 0 and is carried over to the next.
func (m *StealMeter) Read() (float64, error) {
	if m.stat == nil {
		return 0, errors.New("steal: meter not started")
	}
	total, stolen, held, err := m.read()
	if err != nil {
		return 0, err
	}
	all := grown(m.total, total)
	if all == 0 {
		return 0, nil
	}
	lost := float64(grown(m.stolen, stolen)) + float64(grown(m.held, held))/tick
	m.total, m.stolen, m.held = total, stolen, held
	return min(lost/float64(all), 1), nil
}

// grown is the increase of a counter, 0 where it went back: idle and iowait may (proc(5)), and with them the sum.
func grown(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

func (m *StealMeter) read() (total, stolen, held uint64, err error) {
	for _, g := range m.groups {
		text, err := m.pread(g.file)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("steal: %w", err)
		}
		n, ok := valueOf(text, g.key)
		if !ok {
			return 0, 0, 0, fmt.Errorf("steal: %s: no %s", g.file.Name(), bytes.TrimSpace(g.key))
		}
		held += n * g.unit
	}
	text, err := m.pread(m.stat)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("steal: %w", err)
	}
	clear(m.seen)
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		cpu, fields, ok := cpuLine(line)
		if !ok {
			continue
		}
		at, named := slices.BinarySearch(m.cpus, cpu)
		if !named {
			continue
		}
		m.seen[at] = true
		all, taken := cpuTimes(fields)
		total, stolen = total+all, stolen+taken
	}
	if at := slices.Index(m.seen, false); at >= 0 {
		return 0, 0, 0, fmt.Errorf("steal: %s: no cpu%d", m.stat.Name(), m.cpus[at])
	}
	return total, stolen, held, nil
}

// pread reads a file from its start, in one piece so that it is one moment's. Of /proc/stat only the lines before "intr" are
// needed; the rest may be long. The buffer grows when it proves too small, and stays.
func (m *StealMeter) pread(f *os.File) ([]byte, error) {
	for {
		n, err := f.ReadAt(m.buf, 0)
		if err == io.EOF {
			return m.buf[:n], nil // all of it
		}
		if err != nil {
			return nil, err
		}
		if end := bytes.Index(m.buf[:n], []byte("\nintr ")); end >= 0 {
			return m.buf[:end+1], nil
		}
		m.buf = make([]byte, 2*len(m.buf))
	}
}

func cutLine(text []byte) (line, rest []byte) {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, nil
}

// valueOf finds the line that starts with key and reads the number behind it.
func valueOf(text, key []byte) (uint64, bool) {
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		if bytes.HasPrefix(line, key) {
			n, _, ok := number(line[len(key):])
			return n, ok
		}
	}
	return 0, false
}

// cpuLine splits "cpu3 1 2 3 ..." into 3 and its fields. The line "cpu", the sum over all, is not one.
func cpuLine(line []byte) (cpu int, fields []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("cpu"))
	if !ok || len(rest) == 0 || rest[0] == ' ' {
		return 0, nil, false
	}
	n, fields, ok := number(rest)
	return int(n), fields, ok
}

// cpuTimes adds up a CPU's first eight fields: user nice system idle iowait irq softirq steal. The guest times behind them
// are already in user and nice (kernel/sched/cputime.c, account_guest_time).
func cpuTimes(fields []byte) (total, stolen uint64) {
	for i := range 8 {
		n, rest, ok := number(fields)
		if !ok {
			break
		}
		total += n
		if i == 7 {
			stolen = n
		}
		fields = rest
	}
	return total, stolen
}

// number reads decimal digits after any spaces. strconv would need a string, and so an allocation.
func number(text []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for i < len(text) && text[i] == ' ' {
		i++
	}
	start := i
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		n = n*10 + uint64(text[i]-'0')
	}
	return n, text[i:], i > start
}
