//go:build amd64 || arm64 || loong64 || ppc64le || riscv64

package uring

import "syscall"

// CQE is one completion, exactly as the kernel writes it (struct io_uring_cqe, 16 bytes).
type CQE struct {
	UserData uint64 // of the entry that completed
	Res      int32  // what the system call would return: a count, or a negated errno
	Flags    CQEFlags
}

// CQEFlags describe a completion; the upper 16 bits hold the id of a provided buffer.
type CQEFlags uint32

// Bits of CQEFlags (IORING_CQE_F_...).
const (
	FlagBuffer       CQEFlags = 1 << 0 // BufferID is valid
	FlagMore         CQEFlags = 1 << 1 // the entry will complete again
	FlagSockNonempty CQEFlags = 1 << 2 // more to receive (5.19)
	FlagNotification CQEFlags = 1 << 3 // second completion of a zero-copy send
)

// Err is the error of the operation as an errno, nil when it succeeded. A notification has none.
func (c CQE) Err() error {
	if c.Res >= 0 || c.Notification() {
		return nil
	}
	return syscall.Errno(-c.Res)
}

// More tells that the same entry will complete again.
func (c CQE) More() bool { return c.Flags&FlagMore != 0 }

// Done tells that this was the entry's last completion: its memory is the caller's again.
func (c CQE) Done() bool { return c.Flags&FlagMore == 0 }

// Notification tells that this is the second completion of a zero-copy send. Its UserData is that of the first.
func (c CQE) Notification() bool { return c.Flags&FlagNotification != 0 }

// Copied tells, for the notification of a zero-copy send that asked for a report, that the kernel copied at least a part
// (IORING_NOTIF_USAGE_ZC_COPIED).
func (c CQE) Copied() bool { return c.Notification() && uint32(c.Res)>>31 != 0 }

// BufferID is the provided buffer that holds the data; ok is false when there is none.
func (c CQE) BufferID() (id uint16, ok bool) { return uint16(c.Flags >> 16), c.Flags&FlagBuffer != 0 }
