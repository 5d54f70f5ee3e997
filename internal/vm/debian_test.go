package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// kernelSuite holds a kernel whose igb has AF_XDP zero-copy.
	kernelSuite = "trixie-backports"
	// backports is what a release's suite with a newer QEMU is called behind the release's name.
	backports = "-backports"
)

// debian fetches Debian's packages with the sources of this machine and one suite more, in folders of its own: the lists and sources of
// the machine stay as they are.
type debian struct {
	cache string
}

// output runs a command and returns what it printed; its complaints are part of the error.
func output(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(argv, " "), err, out.Bytes(), complaints.Bytes())
	}
	return out.String(), nil
}

// keyring is where Debian's package debian-archive-keyring has its keys. Without the file apt takes those it trusts anyway.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// source is one entry of the machine's sources.
type source struct{ uri, suite string }

func (s source) line() string {
	option := ""
	if _, err := os.Stat(keyring); err == nil {
		option = "[signed-by=" + keyring + "] "
	}
	return fmt.Sprintf("deb %s%s %s main\n", option, s.uri, s.suite)
}

// sources are the entries of this machine for its own release, the main archive first. Without the release's information they are told
// also where apt-get update never ran.
func sources(ctx context.Context) (release string, list []source, err error) {
	about, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", nil, err
	}
	m := regexp.MustCompile(`(?m)^VERSION_CODENAME="?([a-z]+)`).FindSubmatch(about)
	if m == nil {
		return "", nil, errors.New("os-release: no VERSION_CODENAME: not a Debian release")
	}
	release = string(m[1])
	text, err := output(ctx, "", "apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages")
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 || f[1] != release && !strings.HasPrefix(f[1], release+"-") || f[2] != "main" {
			continue
		}
		if s := (source{f[0], f[1]}); !slices.Contains(list, s) { // one for each architecture
			list = append(list, s)
		}
	}
	at := slices.IndexFunc(list, func(s source) bool { return s.suite == release })
	if at < 0 {
		return "", nil, fmt.Errorf("apt sources: no entry for %s main", release)
	}
	list[0], list[at] = list[at], list[0]
	return release, list, nil
}

// view makes apt see only the given sources, and returns the options that say so.
func (d debian) view(ctx context.Context, name string, list ...source) ([]string, error) {
	dir := filepath.Join(d.cache, "apt-"+name)
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	var text strings.Builder
	for _, s := range list {
		text.WriteString(s.line())
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "-o", "Dir::Etc::SourceList=" + dir + "/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + dir + "/lists", "-o", "Dir::Cache=" + dir, "-o", "Acquire::Languages=none",
	}
	_, err := output(ctx, dir, slices.Concat([]string{"apt-get"}, options, []string{"update"})...)
	return options, err
}

// qemu returns the emulator with an igb card (QEMU 8), installed where there is none.
func (d debian) qemu(ctx context.Context) (string, error) {
	const name = "qemu-system-x86_64"
	igb := func() error {
		devices, err := output(ctx, "", name, "-device", "help")
		if err == nil && !strings.Contains(devices, `"igb"`) {
			err = errors.New(name + ": no igb card: too old")
		}
		return err
	}
	if err := igb(); err == nil {
		return name, nil
	}
	release, list, err := sources(ctx)
	if err != nil {
		return "", err
	}
	newer := list[0]
	newer.suite = release + backports
	options, err := d.view(ctx, "host", append(list, newer)...)
	if err != nil {
		return "", err
	}
	install := slices.Concat([]string{"apt-get"}, options, []string{"install", "-y", "--no-install-recommends", "-t", newer.suite, "qemu-system-x86"})
	if _, err := output(ctx, "", install...); err != nil {
		return "", err
	}
	return name, igb()
}

// unpacked returns the folder with what some packages hold; fetch puts their archives into the folder that it is given. What was
// unpacked once is taken from the cache.
func (d debian) unpacked(ctx context.Context, name string, fetch func(dir string) error) (string, error) {
	dir := filepath.Join(d.cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part, err := os.MkdirTemp(d.cache, name+"-part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := fetch(part); err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(part, "*.deb"))
	if err != nil || len(archives) == 0 {
		return "", fmt.Errorf("%s: no archives fetched: %w", name, errors.Join(err, os.ErrNotExist))
	}
	for _, a := range archives {
		if _, err := output(ctx, "", "dpkg-deb", "-x", a, filepath.Join(part, "root")); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(filepath.Join(part, "root"), dir)
}

// busybox returns the path of a static busybox.
func (d debian) busybox(ctx context.Context) (string, error) {
	dir, err := d.unpacked(ctx, "busybox", func(dir string) error {
		_, list, err := sources(ctx)
		if err != nil {
			return err
		}
		options, err := d.view(ctx, "release", list...)
		if err != nil {
			return err
		}
		_, err = output(ctx, dir, slices.Concat([]string{"apt-get"}, options, []string{"download", "busybox-static"})...)
		return err
	})
	if err != nil {
		return "", err
	}
	return only(filepath.Join(dir, "bin/busybox"), filepath.Join(dir, "usr/bin/busybox"))
}

// kernel returns the folder usr/lib/modules/VERSION of the newest kernel in kernelSuite: vmlinuz, and kernel/ with the modules.
func (d debian) kernel(ctx context.Context) (string, error) {
	dir, err := d.unpacked(ctx, "kernel", func(dir string) error {
		_, list, err := sources(ctx)
		if err != nil {
			return err
		}
		suite := list[0]
		suite.suite = kernelSuite
		options, err := d.view(ctx, "kernel", suite)
		if err != nil {
			return err
		}
		names, err := output(ctx, dir, slices.Concat([]string{"apt-cache"}, options[1:], []string{"pkgnames", "linux-"})...)
		if err != nil {
			return err
		}
		version, err := newest(strings.Fields(names))
		if err != nil {
			return err
		}
		_, err = output(ctx, dir, slices.Concat([]string{"apt-get"}, options, []string{"download", "linux-binary-" + version + "-amd64", "linux-modules-" + version + "-amd64"})...)
		return err
	})
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "usr/lib/modules/*"))
	if err != nil {
		return "", err
	}
	return only(found...)
}

// newest chooses among packages linux-binary-VERSION-amd64 that have their modules.
func newest(names []string) (string, error) {
	pattern := regexp.MustCompile(`^linux-binary-(\d+)\.(\d+)\.?(\d*)(\S*)-amd64$`)
	best, order := "", ""
	for _, name := range names {
		m := pattern.FindStringSubmatch(name)
		if m == nil || strings.Contains(name, "-rt-") || strings.Contains(name, "-cloud-") {
			continue
		}
		version := strings.TrimSuffix(strings.TrimPrefix(name, "linux-binary-"), "-amd64")
		if key := fmt.Sprintf("%4s.%4s.%4s%s", m[1], m[2], m[3], m[4]); key > order && slices.Contains(names, "linux-modules-"+version+"-amd64") {
			best, order = version, key
		}
	}
	if best == "" {
		return "", errors.New(kernelSuite + ": no package linux-binary-VERSION-amd64")
	}
	return best, nil
}

// only returns the first path that exists.
func only(paths ...string) (string, error) {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("none of %v: %w", paths, os.ErrNotExist)
}
