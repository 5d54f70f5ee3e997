package vm

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewest(t *testing.T) {
	for _, c := range []struct {
		why   string
		names []string
		want  string
	}{
		{"numbers are compared as numbers", []string{"linux-binary-6.9.1+deb13-amd64", "linux-modules-6.9.1+deb13-amd64", "linux-binary-6.12.2+deb13-amd64", "linux-modules-6.12.2+deb13-amd64"}, "6.12.2+deb13"},
		{"kernels for clouds and real time have other drivers", []string{"linux-binary-7.1.1-cloud-amd64", "linux-modules-7.1.1-cloud-amd64", "linux-binary-7.1.0-rt-amd64", "linux-modules-7.1.0-rt-amd64",
			"linux-binary-6.14-amd64", "linux-modules-6.14-amd64"}, "6.14"},
		{"no modules, no kernel", []string{"linux-binary-7.3.4-amd64"}, ""},
	} {
		if got, err := newest(c.names); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.why, got, err, c.want)
		}
	}
}

// TestInitramfs has the archive read by cpio(1), where there is one, and checks its padding by length.
func TestInitramfs(t *testing.T) {
	var b bytes.Buffer
	if err := (tree{"/init": []byte("12345"), "/a/b/c": []byte("x")}).write(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 || !bytes.HasPrefix(b.Bytes(), []byte("070701")) {
		t.Errorf("%d bytes: %q", b.Len(), b.Bytes()[:6])
	}
	if _, err := exec.LookPath("cpio"); err != nil {
		return // the guest's kernel is the judge that counts
	}
	cmd := exec.Command("cpio", "-t", "--quiet")
	cmd.Stdin = &b
	out, err := cmd.Output()
	if d := cmp.Diff("a\na/b\na/b/c\ninit\n", string(out)); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestReport: what is concluded from the console.
func TestReport(t *testing.T) {
	r, current := &report{jobs: map[string]*outcome{}}, ""
	for _, line := range []string{"--- FAIL: before any job", "GUEST UP 6.14 eth0,eth1", "GUEST RUN a", "=== RUN   TestX", "--- PASS: TestX (0.1s)",
		"    --- SKIP: TestX/y (0.1s)", "--- FAIL: TestZ (1s)", "GUEST END a 1", "GUEST RUN b", "--- PASS: TestB (0s)", "GUEST ERROR insmod", "panic: GUEST"} {
		r.take(line, &current)
	}
	want := report{up: true, errors: []string{"GUEST ERROR insmod"}, jobs: map[string]*outcome{
		"a": {began: true, ended: true, code: "1", passed: 1, notPassed: []string{"--- SKIP: TestX/y (0.1s)", "--- FAIL: TestZ (1s)"}},
		"b": {began: true, passed: 1},
	}}
	if d := cmp.Diff(want, *r, cmp.AllowUnexported(report{}, outcome{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
