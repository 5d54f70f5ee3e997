package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"blast/internal/testskip"
)

// browse opens a file in headless Chromium, which can reach no network, and returns the document as it stands then.
func browse(t *testing.T, file string) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		testskip.Skip(t, "chromium", err.Error(), "apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
		"--window-size=1400,1000", "--dump-dom", "file://"+file)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("chromium: %v\n%s", err, stderr.Bytes())
	}
	return stdout.String()
}

// Every page is laid out by a browser at the width of a screen and of a phone: nothing may overflow, no text in a picture may lie over
// another, leave the picture or be too small, and every axis has a unit.
func TestHTMLLayout(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("testdata", "layout.js"))
	if err != nil {
		t.Fatal(err)
	}
	var frames strings.Builder
	n := 0
	for name, page := range allPages(t) {
		for _, width := range []int{1280, 390} {
			fmt.Fprintf(&frames, `<iframe name="%s %d" style="border:0;width:%dpx;height:1000px" srcdoc="%s"></iframe>`, name, width, width, html.EscapeString(page))
			n++
		}
	}
	file := filepath.Join(t.TempDir(), "all.html")
	body := "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><script>" + string(script) + "</script></head><body>" + frames.String() + "</body></html>"
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := browse(t, file)
	found := regexp.MustCompile(`(?s)<pre id="findings">(.*?)</pre>`).FindStringSubmatch(dom)
	if found == nil {
		t.Fatalf("the script left no findings; document: %.500s", dom)
	}
	var got struct {
		Frames   int
		Findings []string
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &got); err != nil {
		t.Fatal(err)
	}
	if got.Frames != n {
		t.Errorf("%d frames were looked at, want %d", got.Frames, n)
	}
	for _, f := range got.Findings {
		t.Error(f)
	}
}

// The file as it is opens without a network, and the browser finds nothing to repair: what it has then are the elements we wrote.
func TestHTMLOpens(t *testing.T) {
	page := allPages(t)["full"]
	file := filepath.Join(t.TempDir(), "full.html")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := browse(t, file)
	tag := regexp.MustCompile(`<([a-z][a-z0-9]*)[ >/]`)
	count := func(s string) map[string]int {
		n := map[string]int{}
		for _, m := range tag.FindAllStringSubmatch(s, -1) {
			n[m[1]]++
		}
		return n
	}
	ours, theirs := count(page), count(dom)
	for name, k := range ours {
		if theirs[name] != k {
			t.Errorf("<%s>: %d in the file, %d in the document", name, k, theirs[name])
		}
	}
	for name := range theirs {
		if ours[name] == 0 {
			t.Errorf("<%s> was added by the browser", name)
		}
	}
}

// validator checks HTML against the standard's content models and its rules for accessibility.
const validator = "html-validate@10.17.0"

// Every page is valid HTML.
func TestHTMLIsValid(t *testing.T) {
	dir := installed(t, validator)
	config := `{"root": true, "extends": ["html-validate:standard", "html-validate:a11y"]}`
	if err := os.WriteFile(filepath.Join(dir, ".htmlvalidate.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join(dir, "node_modules", "html-validate", "bin", "html-validate.mjs"), "--formatter", "text"}
	for name, page := range allPages(t) {
		file := filepath.Join(dir, name+".html")
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	cmd := exec.Command("node", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("html-validate: %v\n%.6000s", err, out)
	}
}
