package vm

import (
	"bytes"
	"fmt"
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

// TestInitramfs: every part begins at a multiple of four bytes, and folders come before what they hold.
func TestInitramfs(t *testing.T) {
	var b bytes.Buffer
	if err := (tree{"/init": []byte("12345"), "/a/b/c": []byte("x")}).write(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for rest := b.Bytes(); len(rest) > 0; {
		var mode, size, name int
		if _, err := fmt.Sscanf(string(rest[:110]), "070701%8x%8x", new(int), &mode); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(rest[54:62])+" "+string(rest[94:102]), "%x %x", &size, &name); err != nil {
			t.Fatal(err)
		}
		head := (110 + name + 3) &^ 3
		got = append(got, fmt.Sprintf("%o %s %s", mode, rest[110:110+name-1], rest[head:head+size]))
		rest = rest[(head+size+3)&^3:]
	}
	want := []string{"40755 a ", "40755 a/b ", "100755 a/b/c x", "100755 init 12345", "0 TRAILER!!! "}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
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
