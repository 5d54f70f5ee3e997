package change

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// schema names the form of the journal: lines of JSON. The first is the header, then in the order of what happened
//
//	{"n":3,"change":{...},"old":"..."}    written and synced before the change is made
//	{"done":3,"after":"..."}              it was made, and this is what is read back
//	{"refused":3,"why":"..."}             the kernel said no, and old is there again
//	{"restoring":true}                    undoing began
//
// A last line without its end was being written when the process died, so what it announces was not done.
const schema = "blast.tune.journal/1"

// Header says whose journal it is.
type Header struct {
	Schema string `json:"schema"`
	// Boot is the boot id: settings of an earlier boot are gone by themselves.
	Boot string `json:"boot"`
	// NetNS names the network namespace that network settings are of.
	NetNS   string    `json:"netns"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Command []string  `json:"command"`
}

// record is one line behind the header.
type record struct {
	N         int     `json:"n,omitempty"`
	Change    *Change `json:"change,omitempty"`
	Old       string  `json:"old,omitempty"`
	Done      int     `json:"done,omitempty"`
	After     string  `json:"after,omitempty"`
	Refused   int     `json:"refused,omitempty"`
	Why       string  `json:"why,omitempty"`
	Restoring bool    `json:"restoring,omitempty"`
}

// entry is a change with what the journal knows of it.
type entry struct {
	Change
	old, after    string
	done, refused bool
}

// Errors about journals.
var (
	// ErrNoJournal: nothing was applied, or everything was put back.
	ErrNoJournal = errors.New("nothing is applied")
	// ErrJournal: there is a journal already, of changes that were not put back.
	ErrJournal = errors.New("settings are applied already")
	// ErrBusy: the process that owns the journal is at work.
	ErrBusy = errors.New("in use")
)

// journal is an open, locked journal. The lock (flock(2)) ends with the process.
type journal struct {
	path    string
	file    *os.File
	header  Header
	entries []entry
	// restoring: an undo was begun, by this process or one before.
	restoring bool
}

// createJournal makes a journal with its header, or says whose is in the way.
func createJournal(path string, h Header) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, inTheWay(path)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: path, file: f, header: h}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: lock: %w", err), f.Close())
	}
	if err := errors.Join(j.line(h), syncDir(path)); err != nil {
		return nil, errors.Join(err, j.remove())
	}
	return j, nil
}

// inTheWay explains a journal that is there.
func inTheWay(path string) error {
	j, err := openJournal(path)
	if err != nil {
		return err
	}
	defer j.close()
	return fmt.Errorf("%w by %s; put them back first: blast tune restore", ErrJournal, j.header.owner())
}

func (h Header) owner() string {
	if h.PID == 0 {
		return "a blast that died before it changed anything"
	}
	return fmt.Sprintf("process %d (%q) at %s", h.PID, h.Command, h.Started.Format(time.DateTime))
}

// openJournal reads a journal and takes its lock, ErrNoJournal when there is none and ErrBusy when its owner is at work.
func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoJournal
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: path, file: f}
	if _, err := j.read(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w by %s, which puts its changes back itself", path, ErrBusy, j.header.owner()), j.close())
	}
	// Only now nobody else can have removed it, or written more.
	if mine, now := inode(f), inodeAt(path); mine != now {
		return nil, errors.Join(ErrNoJournal, j.close())
	}
	whole, err := j.read()
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, errors.Join(f.Truncate(whole), seek(f, whole))
}

func seek(f *os.File, to int64) error {
	_, err := f.Seek(to, io.SeekStart)
	return err
}

func inode(f *os.File) uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Ino
}

func inodeAt(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

// read fills the journal from its file and returns the length of its whole lines.
func (j *journal) read() (int64, error) {
	b, err := io.ReadAll(io.NewSectionReader(j.file, 0, 1<<30))
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	j.header, j.entries, j.restoring = Header{}, nil, false
	end := int64(bytes.LastIndexByte(b, '\n') + 1)
	first := true
	for line := range bytes.Lines(b[:end]) {
		if first {
			first = false
			if err := json.Unmarshal(line, &j.header); err != nil || j.header.Schema != schema {
				return 0, fmt.Errorf("journal %s: not a journal of this blast (want schema %s); move it away by hand", j.path, schema)
			}
			continue
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("journal %s: %w", j.path, err)
		}
		if err := j.take(r); err != nil {
			return 0, fmt.Errorf("journal %s: %w", j.path, err)
		}
	}
	return end, nil
}

// take applies a record to the entries.
func (j *journal) take(r record) error {
	n := max(r.Done, r.Refused)
	switch {
	case r.Restoring:
		j.restoring = true
	case r.Change != nil && r.N == len(j.entries)+1:
		j.entries = append(j.entries, entry{Change: *r.Change, old: r.Old})
	case n < 1 || n > len(j.entries):
		return fmt.Errorf("record of change %d, of %d", n, len(j.entries))
	case r.Done > 0:
		j.entries[n-1].done, j.entries[n-1].after = true, r.After
	default:
		j.entries[n-1].refused = true
	}
	return nil
}

// add writes a record, waits until it is on the disk, and takes it.
func (j *journal) add(r record) error {
	if err := j.line(r); err != nil {
		return err
	}
	return j.take(r)
}

func (j *journal) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// close leaves the journal where it is and gives up its lock.
func (j *journal) close() error {
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// remove ends the journal: everything is as it was.
func (j *journal) remove() error {
	err := errors.Join(os.Remove(j.path), syncDir(j.path))
	return errors.Join(err, j.file.Close())
}

// syncDir makes a file's making or removal last.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	err = d.Sync()
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// readJournal reads a journal without taking its lock for longer than it takes to see whether somebody has it.
func readJournal(path string) (*journal, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoJournal
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: path, file: f}
	if _, err := j.read(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// busy says whether the lock is another's. Where it is not, it is taken; closing gives it back.
func (j *journal) busy() bool { return unix.Flock(int(j.file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil }
