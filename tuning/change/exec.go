package change

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by a command that may have nofile open files. Raising the hard limit needs CAP_SYS_RESOURCE, and none goes
// above fs.nr_open. Nothing of the host changes, so there is nothing to put back. It returns only on an error.
func Exec(nofile uint64, argv []string) error {
	if len(argv) == 0 {
		return errors.New("no command to run")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("run %q: %w", argv[0], err)
	}
	if err := raiseNoFile(nofile); err != nil {
		return err
	}
	return fmt.Errorf("run %q: %w", argv[0], unix.Exec(path, argv, os.Environ()))
}

// raiseNoFile sets the soft limit, and the hard one when it is below.
func raiseNoFile(n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	hard := l.Max
	l.Cur, l.Max = n, max(l.Max, n)
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("open files: %d is above the hard limit of %d, or above fs.nr_open: raise fs.nr_open and run as root with CAP_SYS_RESOURCE, or set nofile in "+
			"/etc/security/limits.conf or LimitNOFILE= of the service: %w", n, hard, err)
	}
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	return nil
}
