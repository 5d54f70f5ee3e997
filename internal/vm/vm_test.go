package vm

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blast/internal/testskip"
)

//go:embed init.sh
var initScript []byte

const (
	// wanted makes TestVM boot the guest; inside is set in it.
	wanted, inside = "BLAST_VM", "BLAST_VM_INSIDE"
	// bootLimit bounds the guest's whole life.
	bootLimit = 8 * time.Minute
	// fetchLimit bounds downloads, installation and building.
	fetchLimit = 5 * time.Minute
	// self is the job that runs this package's tests in the guest.
	self = "cards"
)

// jobs are run in this order.
func jobs() []job {
	return []job{
		{"xdp", "./xdp", "^TestKernel(Hardware|ResolveVLAN)$", 3 * time.Minute},
		// The kernel of the build machines makes neither bond nor VLAN.
		{"live", "./xdp/live", "^TestKernelUnsuitable$", time.Minute},
		{"testnet", "./internal/testnet", "^TestKernelPair$", time.Minute},
		{self, "./internal/vm", "^TestVM$", 6 * time.Minute},
	}
}

// TestVM boots the guest, runs the jobs in it and has one subtest for each. In the guest it is one of the jobs.
func TestVM(t *testing.T) {
	if os.Getenv(inside) != "" {
		testInside(t)
		return
	}
	if os.Getenv(wanted) == "" {
		testskip.Skip(t, "vm", "boots a virtual machine for some minutes", "make vm-test")
	}
	fetch, cancel := context.WithTimeout(t.Context(), fetchLimit)
	defer cancel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	d := debian{filepath.Join(cache, "blast-vm")}
	if err := os.MkdirAll(d.cache, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	qemu, err := d.qemu(fetch)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := d.kernel(fetch)
	if err != nil {
		t.Fatal(err)
	}
	initramfs := filepath.Join(t.TempDir(), "initramfs")
	if err := build(fetch, d, kernel, initramfs); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s ready after %s", filepath.Base(kernel), time.Since(began).Round(time.Second))

	running, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	began = time.Now()
	r, err := boot(running, qemu, filepath.Join(kernel, "vmlinuz"), initramfs, func(line string) { t.Log(line) })
	t.Logf("the guest lived for %s", time.Since(began).Round(time.Second))
	if err != nil || !r.up || !r.done || len(r.errors) > 0 {
		t.Errorf("the guest: up %t, done %t, %v, %v", r.up, r.done, err, r.errors)
	}
	for _, j := range jobs() {
		t.Run(j.name, func(t *testing.T) {
			o := r.jobs[j.name]
			switch {
			case o == nil:
				t.Fatal("was not begun")
			case !o.ended:
				t.Fatal("did not end")
			case o.code != "0" || o.passed == 0 || len(o.notPassed) > 0:
				t.Errorf("exit code %s, %d passed; not passed: %s", o.code, o.passed, strings.Join(o.notPassed, "; "))
			}
		})
	}
}

// build makes the initramfs: busybox, the modules, the test binaries, blast itself, and what to run.
func build(ctx context.Context, d debian, kernel, initramfs string) error {
	busybox, err := d.busybox(ctx)
	if err != nil {
		return err
	}
	loaded, err := modules(ctx, filepath.Join(kernel, "kernel"), busybox, "igb", "veth", "8021q", "xsk_diag", "bonding", "bridge", "macvlan", "tun")
	if err != nil {
		return err
	}
	files := tree{"/init": initScript}
	if files["/bin/busybox"], err = os.ReadFile(busybox); err != nil {
		return err
	}
	for i, m := range loaded {
		files[fmt.Sprintf("/modules/%02d-%s.ko", i, m.name)] = m.data
	}
	dir := filepath.Dir(initramfs)
	compile := func(name string, argv ...string) error {
		at := filepath.Join(dir, name)
		_, err := output(ctx, "../..", append(append([]string{"env", "CGO_ENABLED=0", "go"}, argv[:len(argv)-1]...),
			"-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", at, argv[len(argv)-1])...)
		if err == nil {
			files["/bin/"+name], err = os.ReadFile(at)
		}
		return err
	}
	if err := compile("blast", "build", "./cmd/blast"); err != nil {
		return err
	}
	var runs strings.Builder
	for _, j := range jobs() {
		if err := compile(j.name+".test", "test", "-c", j.pkg); err != nil {
			return err
		}
		fmt.Fprintf(&runs, "run %s %s /bin/%s.test '%s'\n", j.name, j.limit, j.name, j.tests)
	}
	files["/runs"] = []byte(runs.String())
	out, err := os.Create(initramfs)
	if err != nil {
		return err
	}
	defer out.Close()
	return files.write(out)
}
