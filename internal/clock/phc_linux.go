package clock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// phcSamples is the number of bracketed readings of one call, of which the tightest counts; at most PTP_MAX_SAMPLES.
	phcSamples = 10
	// phcTries is how often a reading is made again because CLOCK_REALTIME was set meanwhile.
	phcTries = 4
)

// PHC is the clock of a network device as a Device that a goroutine keeps true, so that no thread of a run waits for the device: one look at
// its counter may take from a microsecond (PCIe) to milliseconds (other buses).
type PHC struct {
	Device
	file      *os.File
	now       func() int64
	precise   bool // the device relates its clock to the processor's itself (PTP_SYS_OFFSET_PRECISE)
	stop, end chan struct{}
}

// OpenPHC opens /dev/ptpN for reading, compares it with CLOCK_MONOTONIC, which now reads, and goes on doing so until Close. It takes some 30 ms,
// and whatever may open the file: root by default.
func OpenPHC(index int, now func() int64) (*PHC, error) {
	f, err := os.Open("/dev/ptp" + strconv.Itoa(index))
	if err != nil {
		return nil, err
	}
	p := &PHC{file: f, now: now, stop: make(chan struct{}), end: make(chan struct{})}
	wait, err := p.add()
	if err == nil {
		time.Sleep(wait)
		wait, err = p.add()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), errors.Join(err, f.Close()))
	}
	go p.keep(wait)
	return p, nil
}

// Close ends the comparing. What was stamped until then can still be converted.
func (p *PHC) Close() error {
	close(p.stop)
	<-p.end
	return p.file.Close()
}

func (p *PHC) keep(wait time.Duration) {
	defer close(p.end)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		if next, err := p.add(); err == nil { // else the line holds, and the next reading shows how well
			wait = next
		}
		timer.Reset(wait)
	}
}

// add adds one reading.
func (p *PHC) add() (time.Duration, error) {
	r, err := p.read()
	if err != nil {
		return 0, err
	}
	return p.Add(r), nil
}

// read compares the device's clock with CLOCK_REALTIME, as the calls do, and CLOCK_REALTIME with CLOCK_MONOTONIC before and after.
func (p *PHC) read() (Reading, error) {
	for range phcTries {
		var before, after Realtime
		before.Renew(p.now(), p.now)
		r, err := p.offset()
		after.Renew(p.now(), p.now)
		if err != nil {
			return Reading{}, err
		}
		slack := max(before.width, after.width)
		if moved := abs(after.ahead - before.ahead); moved > slack {
			continue
		}
		r.At = after.Monotonic(r.At)
		r.Error += slack
		return r, nil
	}
	return Reading{}, errors.New("CLOCK_REALTIME is being set")
}

// offset is a reading whose At is of CLOCK_REALTIME.
func (p *PHC) offset() (Reading, error) {
	fd := int(p.file.Fd())
	if !p.precise {
		got, err := unix.IoctlPtpSysOffsetExtended(fd, phcSamples)
		if err == nil {
			return tightest(got.Ts[:phcSamples])
		}
		// Drivers that cannot read both clocks in a row leave it at that (drivers/ptp/ptp_chardev.c: EOPNOTSUPP, ENOTTY before Linux 5.0).
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOTTY) {
			return Reading{}, os.NewSyscallError("ioctl PTP_SYS_OFFSET_EXTENDED", err)
		}
		p.precise = true
	}
	got, err := unix.IoctlPtpSysOffsetPrecise(fd)
	if err != nil {
		return Reading{}, os.NewSyscallError("ioctl PTP_SYS_OFFSET_PRECISE", err)
	}
	return Reading{Device: nanoseconds(got.Device), At: nanoseconds(got.Realtime)}, nil
}

// tightest is the reading of the narrowest of several brackets (system, device, system): the middle, to within half of it.
func tightest(samples [][3]unix.PtpClockTime) (Reading, error) {
	best := widest
	var r Reading
	for _, s := range samples {
		before, after := nanoseconds(s[0]), nanoseconds(s[2])
		if width := after - before; width >= 0 && width < best { // negative where somebody set the clock
			best = width
			r = Reading{Device: nanoseconds(s[1]), At: before + width/2, Error: (width + 1) / 2}
		}
	}
	if best == widest {
		return r, errors.New("CLOCK_REALTIME is being set")
	}
	return r, nil
}

// widest is wider than any bracket.
const widest = int64(1 << 62)

func nanoseconds(t unix.PtpClockTime) int64 { return t.Sec*int64(time.Second) + int64(t.Nsec) }
