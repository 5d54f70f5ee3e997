package uring

import (
	"errors"
	"fmt"
	"time"
)

// Limits of the kernel (IORING_MAX_ENTRIES and IORING_MAX_CQ_ENTRIES in io_uring/io_uring.c, unchanged since 5.5).
const (
	MaxEntries   = 32768
	MaxCQEntries = 2 * MaxEntries
)

// Config says what New builds. The zero value is a ring of 256 entries with an empty arena.
type Config struct {
	// Entries is the size of the submission queue: a power of two up to MaxEntries. Zero means 256.
	Entries uint32
	// CQEntries is the size of the completion queue: a power of two, at least Entries, up to MaxCQEntries. Zero means twice
	// Entries, the kernel's own choice. Zero-copy sends complete twice and multishot receives often: size it for them.
	CQEntries uint32
	// ArenaBytes is the memory for everything entries point at. Zero means none: then only operations without memory work.
	ArenaBytes int
	// HugePages asks for 2 MiB pages for the arena; without any, normal ones are taken. Granted.HugePages tells.
	HugePages bool
	// LazyArena leaves pages of the arena out of memory until they are touched, for a large arena of which little is used. False
	// touches them all in New, so that no page fault comes later.
	LazyArena bool
	// SQPoll makes a kernel thread take entries off the queue, so that submitting needs no system call while it is awake. It
	// spins on a CPU of its own for SQPollIdle after the last entry; charge that to the program (Ring.SQThreadTime).
	SQPoll bool
	// SQPollIdle is how long the kernel thread spins before it sleeps, whole milliseconds. Zero means the kernel's one second.
	SQPollIdle time.Duration
	// SQPollPin binds the kernel thread to SQPollCPU. When false SQPollCPU is ignored.
	SQPollPin bool
	// SQPollCPU is the CPU for SQPollPin.
	SQPollCPU int
	// Avoid holds set-up flags that must not be used although the kernel may have them, for comparing modes. Zero avoids none.
	Avoid SetupFlags
	// RawBatch is the largest submission made without telling the Go scheduler, in entries. Such a call keeps the P, which
	// saves a hand-over but delays a garbage collection by its own length. Zero means 64 (tens of microseconds of loopback
	// sends); negative means never.
	RawBatch int
	// ForeignMemory switches off the check that entries point into the arena, for callers with mapped memory of their own.
	ForeignMemory bool
}

// withDefaults fills in the documented meaning of zero values.
func (c Config) withDefaults() Config {
	if c.Entries == 0 {
		c.Entries = 256
	}
	if c.CQEntries == 0 {
		c.CQEntries = 2 * c.Entries
	}
	if c.RawBatch == 0 {
		c.RawBatch = 64
	}
	return c
}

// Validate returns every problem of the configuration, joined, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("uring: config: "+format, args...)) }
	if c.Entries&(c.Entries-1) != 0 || c.Entries > MaxEntries {
		bad("Entries is %d; the kernel takes powers of two up to %d", c.Entries, MaxEntries)
	}
	if c.CQEntries&(c.CQEntries-1) != 0 || c.CQEntries > MaxCQEntries || c.CQEntries < c.Entries {
		bad("CQEntries is %d; the kernel takes powers of two from Entries (%d) up to %d", c.CQEntries, c.Entries, MaxCQEntries)
	}
	if c.ArenaBytes < 0 {
		bad("ArenaBytes is %d", c.ArenaBytes)
	}
	if c.SQPollIdle < 0 || c.SQPollIdle%time.Millisecond != 0 || c.SQPollIdle > time.Hour {
		bad("SQPollIdle is %v; the kernel counts whole milliseconds, and more than an hour is surely a mistake", c.SQPollIdle)
	}
	if c.SQPollPin && c.SQPollCPU < 0 {
		bad("SQPollCPU is %d", c.SQPollCPU)
	}
	if !c.SQPoll && (c.SQPollPin || c.SQPollIdle != 0) {
		bad("SQPollIdle and SQPollPin need SQPoll")
	}
	return errors.Join(errs...)
}

// SetupFlags is a set of io_uring_setup(2) flags.
type SetupFlags uint32

// The flags New may use; bits as in include/uapi/linux/io_uring.h. See the package comment for the kernels.
const (
	SQPoll       SetupFlags = 1 << 1  // a kernel thread submits
	SQAff        SetupFlags = 1 << 2  // that thread is pinned
	CQSize       SetupFlags = 1 << 3  // the completion queue has the size asked for
	SubmitAll    SetupFlags = 1 << 7  // a bad entry does not stop the rest of its batch
	CoopTaskrun  SetupFlags = 1 << 8  // no interrupt to deliver completions; they come with the next system call
	SingleIssuer SetupFlags = 1 << 12 // only the owner submits: cheaper locking
	DeferTaskrun SetupFlags = 1 << 13 // completions are delivered only inside the owner's enter
	NoSQArray    SetupFlags = 1 << 16 // no index array between queue and entries
)

// String lists the flags by the kernel's names, "bare" for none.
func (f SetupFlags) String() string {
	return bitNames(uint32(f), "bare", []bitName{
		{1 << 1, "SQPOLL"}, {1 << 2, "SQ_AFF"}, {1 << 3, "CQSIZE"}, {1 << 7, "SUBMIT_ALL"}, {1 << 8, "COOP_TASKRUN"},
		{1 << 12, "SINGLE_ISSUER"}, {1 << 13, "DEFER_TASKRUN"}, {1 << 16, "NO_SQARRAY"},
	})
}

// Features is what the kernel says it can do, from io_uring_setup(2).
type Features uint32

// String lists the features by the kernel's names, "none" for none.
func (f Features) String() string {
	return bitNames(uint32(f), "none", []bitName{
		{1 << 0, "SINGLE_MMAP"}, {1 << 1, "NODROP"}, {1 << 2, "SUBMIT_STABLE"}, {1 << 3, "RW_CUR_POS"}, {1 << 4, "CUR_PERSONALITY"},
		{1 << 5, "FAST_POLL"}, {1 << 6, "POLL_32BITS"}, {1 << 7, "SQPOLL_NONFIXED"}, {1 << 8, "EXT_ARG"}, {1 << 9, "NATIVE_WORKERS"},
		{1 << 10, "RSRC_TAGS"}, {1 << 11, "CQE_SKIP"}, {1 << 12, "LINKED_FILE"}, {1 << 13, "REG_REG_RING"},
		{1 << 14, "RECVSEND_BUNDLE"}, {1 << 15, "MIN_TIMEOUT"}, {1 << 16, "RW_ATTR"}, {1 << 17, "NO_IOWAIT"},
	})
}

type bitName struct {
	bit  uint32
	name string
}

func bitNames(v uint32, none string, names []bitName) string {
	s := ""
	for _, n := range names {
		if v&n.bit != 0 {
			s += " " + n.name
			v &^= n.bit
		}
	}
	if v != 0 {
		s += fmt.Sprintf(" %#x", v)
	}
	if s == "" {
		return none
	}
	return s[1:]
}
