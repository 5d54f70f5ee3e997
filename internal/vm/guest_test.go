package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// machine are the arguments of QEMU: two nodes with two processors each, and on each node, behind a bridge of its own, an igb card. A
// card with virtual functions needs a root port for itself. A hub joins the two.
func machine(kernel, initramfs string) []string {
	return strings.Fields(`-M q35 -accel tcg,thread=multi -cpu max -smp 4,sockets=2,cores=2 -m 2048
		-object memory-backend-ram,id=m0,size=1024M -object memory-backend-ram,id=m1,size=1024M
		-numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1
		-device pxb-pcie,id=px0,bus=pcie.0,bus_nr=32,numa_node=0 -device pxb-pcie,id=px1,bus=pcie.0,bus_nr=64,numa_node=1
		-device pcie-root-port,id=rp0,bus=px0,chassis=1,slot=1 -device pcie-root-port,id=rp1,bus=px1,chassis=2,slot=2
		-netdev hubport,id=h0,hubid=0 -netdev hubport,id=h1,hubid=0
		-device igb,netdev=h0,bus=rp0,mac=52:54:00:00:00:01 -device igb,netdev=h1,bus=rp1,mac=52:54:00:00:00:02
		-nographic -no-reboot -nodefaults -serial stdio -monitor none
		-kernel ` + kernel + ` -initrd ` + initramfs + ` -append`)
}

// job is one test binary to run in the guest.
type job struct {
	name string
	// pkg is its package, tests the regular expression of the tests to run.
	pkg, tests string
	limit      time.Duration
}

// outcome is what became of a job.
type outcome struct {
	began, ended bool
	code         string
	passed       int
	// notPassed are go test's own lines about tests that failed or were skipped.
	notPassed []string
}

// report is what a guest said.
type report struct {
	up, done bool
	jobs     map[string]*outcome
	errors   []string
}

// verdict is go test's line about one test, subtests included.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): `)

// take takes one line of the console into account.
func (r *report) take(line string, current *string) {
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "GUEST" {
		o, m := r.jobs[*current], verdict.FindStringSubmatch(line)
		switch {
		case o == nil || m == nil:
		case m[1] == "PASS":
			o.passed++
		default:
			o.notPassed = append(o.notPassed, strings.TrimSpace(line))
		}
		return
	}
	switch f[1] {
	case "UP":
		r.up = true
	case "DONE":
		r.done = true
	case "ERROR":
		r.errors = append(r.errors, line)
	case "RUN":
		*current = f[2]
		r.jobs[f[2]] = &outcome{began: true}
	case "END":
		if o := r.jobs[f[2]]; o != nil && len(f) == 4 {
			o.ended, o.code = true, f[3]
		}
		*current = ""
	}
}

// boot runs the guest until it powers itself off or the context ends, and gives each line that it prints to each.
func boot(ctx context.Context, qemu, kernel, initramfs string, each func(line string)) (*report, error) {
	cmd := exec.CommandContext(ctx, qemu, append(machine(kernel, initramfs), "console=ttyS0 quiet panic=-1")...)
	console, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return nil, fmt.Errorf("qemu: %w", err)
	}
	r := &report{jobs: map[string]*outcome{}}
	current := ""
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		// The firmware's escape sequences come before the kernel's first line, on the same one.
		if at := strings.Index(line, "GUEST "); at > 0 {
			line = line[at:]
		}
		r.take(line, &current)
		each(line)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		err = fmt.Errorf("qemu: %w", err)
	}
	return r, err
}
