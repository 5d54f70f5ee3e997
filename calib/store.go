package calib

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Store keeps profiles in a directory, one file a host fingerprint.
type Store struct {
	// Dir is made by Save when it is not there.
	Dir string
}

// maxFile bounds a file that is read: a profile of a large host is some hundred kB.
const maxFile = 64 << 20

// DefaultStore is below $XDG_STATE_HOME, or ~/.local/state where that is not set or not absolute (XDG Base Directory Specification).
func DefaultStore() (Store, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return Store{Dir: filepath.Join(dir, "blast")}, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return Store{}, fmt.Errorf("calibrations: nowhere to keep them, set XDG_STATE_HOME: %w", err)
	}
	return Store{Dir: filepath.Join(home, ".local", "state", "blast")}, nil
}

// Path is the file of a fingerprint.
func (s Store) Path(fingerprint string) string {
	return filepath.Join(s.Dir, "calibration-"+fingerprint+".json")
}

// Writable says whether Save would find a place: it makes Dir, and a file there that it removes again.
func (s Store) Writable() error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	temp, err := os.CreateTemp(s.Dir, ".calibration.*")
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return errors.Join(temp.Close(), os.Remove(temp.Name()))
}

// Save writes p in place of an earlier profile of the same fingerprint: whole or not at all, also when the machine stops meanwhile.
func (s Store) Save(p *Profile) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("calibration: %w", err)
		}
	}()
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(s.Dir, ".calibration.*")
	if err != nil {
		return err
	}
	err = errors.Join(p.JSON(temp), temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), s.Path(p.Fingerprint))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	dir, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Load reads the profile of a fingerprint. The error wraps os.ErrNotExist when there is none; any other error names the file, which
// is damaged, of another schema or another host, and may be replaced by a new calibration.
func (s Store) Load(fingerprint string) (*Profile, error) {
	path := s.Path(fingerprint)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	p, err := parse(b)
	if err == nil && p.Fingerprint != fingerprint {
		err = fmt.Errorf("it is of the host with fingerprint %q", p.Fingerprint)
	}
	if err != nil {
		return nil, fmt.Errorf("calibration %s: %w", path, err)
	}
	return p, nil
}

// parse reads a profile. The schema is looked at first: the rest of another one need not fit.
func parse(b []byte) (*Profile, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("schema %q, want %q", head.Schema, Schema)
	}
	p := &Profile{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	return p, nil
}
