package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"blast/tuning"
)

// Change is one setting and the value it is to get.
type Change struct {
	Item Item   `json:"item"`
	Key  string `json:"key"`
	New  string `json:"new"`
	// Keep changes nothing now: the setting is noted because a change after it disturbs it, and put back when that is undone.
	Keep bool `json:"keep,omitempty"`
	// IRQ is the name of the interrupt that a file below /proc/irq is about: its number may change with the channels.
	IRQ string `json:"irq,omitempty"`
}

// Outcome is what became of a change.
type Outcome struct {
	Change
	Old string `json:"old"`
	// State is StateApplied, StateAlready, StateRefused, ...; Why explains a refusal.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// States of changes.
const (
	StateApplied  = "applied"
	StateAlready  = "already"  // it had the value
	StateRefused  = "refused"  // the kernel or driver said no, and it is as it was
	StateRestored = "restored" // put back
	StateBack     = "back"     // it had gone back by itself
	StateForeign  = "foreign"  // somebody else changed it since, so it was left
	StateLost     = "lost"     // it could not be put back
	StateHalf     = "unsure"   // being changed when the process died
)

// Tuner changes and restores. The zero value works on this host.
type Tuner struct {
	Reader tuning.Reader
	// System, nil = Host{Reader}.
	System System
	// Journal is the path of the journal; empty = /var/lib/blast/tune.journal below the root.
	Journal string
	// Progress, when set, is told of each step before it is made.
	Progress func(step string)
}

func (t Tuner) system() System {
	if t.System != nil {
		return t.System
	}
	return Host{t.Reader}
}

func (t Tuner) journal() string {
	if t.Journal != "" {
		return t.Journal
	}
	return t.Reader.Path("/var/lib/blast/tune.journal")
}

func (t Tuner) step(format string, args ...any) {
	if t.Progress != nil {
		t.Progress(fmt.Sprintf(format, args...))
	}
}

func (t Tuner) boot() string {
	b, err := os.ReadFile(t.Reader.Path("/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// netns names the calling thread's network namespace, "" in a tree that has none.
func (t Tuner) netns() string {
	name, err := os.Readlink(t.Reader.Path("/proc/thread-self/ns/net"))
	if err != nil {
		return ""
	}
	return name
}

// Session is a set of changes in the making. It holds the journal's lock until Close or Undo.
type Session struct {
	t Tuner
	j *journal
}

// Begin starts a session for the command line given. It fails without changing anything when there is a journal already (ErrJournal,
// ErrBusy) or this process lacks the privilege (os.ErrPermission).
func (t Tuner) Begin(command []string) (*Session, error) {
	if t.Reader.Live() && t.System == nil && unix.Geteuid() != 0 {
		return nil, fmt.Errorf("changing settings needs root: %w; nothing was changed", os.ErrPermission)
	}
	t.step("create journal")
	j, err := createJournal(t.journal(), Header{Schema: schema, Boot: t.boot(), NetNS: t.netns(), PID: os.Getpid(), Started: time.Now().UTC(), Command: command})
	if err != nil {
		return nil, err
	}
	return &Session{t, j}, nil
}

// Apply makes the changes in order. One that is refused is left as it was and the others go on; but where the privilege is missing,
// or the journal cannot be written, everything of the session is undone and the error says so. The channels of a card are tried a
// second time with its RSS table reset, because drivers refuse to drop queues that the table names.
func (s *Session) Apply(changes []Change) ([]Outcome, error) {
	out := make([]Outcome, 0, len(changes))
	for _, c := range changes {
		o, err := s.apply(c)
		if err == nil && o.State == StateRefused && c.Item == Channels {
			o, err = s.retryChannels(c, o)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w; everything was put back", c.Key, err), s.Undo())
		}
		if !c.Keep {
			out = append(out, o)
		}
	}
	return out, nil
}

// apply makes one change. An error is one that ends the session.
func (s *Session) apply(c Change) (Outcome, error) {
	system, o := s.t.system(), Outcome{Change: c}
	old, err := system.Get(c.Key)
	if err != nil {
		o.State, o.Why = StateRefused, explain(err)
		if c.Keep {
			o.State = StateAlready
		}
		return o, nil
	}
	o.Old = old
	if !c.Keep && same(c.Key, old, c.New) {
		o.State = StateAlready
		return o, nil
	}
	if c.Keep {
		c.New = old
	}
	n := len(s.j.entries) + 1
	s.t.step("note %s", c.Key)
	if err := s.j.add(record{N: n, Change: &c, Old: old}); err != nil {
		return o, err
	}
	if c.Keep {
		o.State = StateAlready
		return o, nil
	}
	s.t.step("set %s", c.Key)
	if err := system.Set(c.Key, c.New); err != nil {
		return s.refuse(n, o, err)
	}
	s.t.step("made %s", c.Key)
	after, err := system.Get(c.Key)
	if err != nil {
		return o, err
	}
	o.State = StateApplied
	return o, s.j.add(record{Done: n, After: after})
}

// refuse notes a change that the kernel did not make, and makes sure that it left nothing behind.
func (s *Session) refuse(n int, o Outcome, err error) (Outcome, error) {
	if missing(err) && !managed(o.Change, err) {
		return o, err
	}
	system := s.t.system()
	if now, readErr := system.Get(o.Key); readErr == nil && now != o.Old {
		if err := system.Set(o.Key, o.Old); err != nil {
			return o, err
		}
	}
	o.State, o.Why = StateRefused, explain(err)
	if managed(o.Change, err) {
		o.Why = "the kernel manages this interrupt itself (" + errnoName(err) + ")"
	}
	return o, s.j.add(record{Refused: n, Why: o.Why})
}

// retryChannels resets the RSS table and tries again; when that does not help, the table is put back.
func (s *Session) retryChannels(c Change, first Outcome) (Outcome, error) {
	iface, _, _ := strings.Cut(c.Key, " ")
	table := Change{Item: RSS, Key: deviceKey(iface, tuning.RSSConfig), New: "table=default"}
	reset, err := s.apply(table)
	if err != nil || reset.State != StateApplied {
		return first, err
	}
	second, err := s.apply(c)
	if err != nil || second.State == StateApplied {
		return second, err
	}
	second.Why += ", also with the RSS table reset"
	s.t.step("set %s", table.Key)
	if err := s.t.system().Set(table.Key, reset.Old); err != nil {
		return second, err
	}
	return second, nil
}

// Close keeps the changes, and the journal for restore.
func (s *Session) Close() error { return s.j.close() }

// Undo puts everything of the session back and removes the journal.
func (s *Session) Undo() error {
	out, err := s.t.undo(s.j, false)
	for _, o := range out {
		if o.State == StateLost {
			err = errors.Join(err, fmt.Errorf("%s: not put back: %s", o.Key, o.Why))
		}
	}
	return err
}

// missing says whether an error means that this process may not change such settings at all: EPERM, EACCES, or EROFS where a
// container mounts /proc/sys read-only.
func missing(err error) bool { return errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) }

// managed says that an interrupt cannot be moved by anybody: writing its affinity answers EIO, or EPERM on newer kernels (6.18 does),
// although the file could be opened for it (kernel/irq/proc.c, write_irq_affinity).
func managed(c Change, err error) bool {
	var path *fs.PathError
	return c.Item == IRQ && errors.As(err, &path) && path.Op == "write" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EIO))
}

// explain words what the kernel says about settings.
func explain(err error) string {
	var why string
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		why = "the driver does not offer it"
	case errors.Is(err, os.ErrNotExist):
		why = "not there on this host"
	case errors.Is(err, unix.EBUSY):
		why = "the device is busy"
	default:
		return err.Error()
	}
	return why + " (" + errnoName(err) + ")"
}

func errnoName(err error) string {
	var e unix.Errno
	switch {
	case errors.As(err, &e) && e == unix.EOPNOTSUPP:
		return "EOPNOTSUPP" // which ErrnoName calls by its other name
	case errors.As(err, &e):
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// relocate finds the file of an interrupt again whose number changed.
func (t Tuner) relocate(c Change) string {
	parts := strings.Split(c.Key, "/") // "", proc, irq, N, smp_affinity_list
	if c.IRQ == "" || len(parts) < 5 {
		return c.Key
	}
	number, err := strconv.Atoi(parts[3])
	names := t.Reader.InterruptNames()
	if err != nil || names[number] == c.IRQ {
		return c.Key
	}
	for n, name := range names {
		if name == c.IRQ {
			parts[3] = strconv.Itoa(n)
			return strings.Join(parts, "/")
		}
	}
	return c.Key
}
