package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"blast/stats"
)

// TestScripts runs the command lines of testdata: bad input, files, help. Two commands are added to those of testscript:
//
//	exits CODE[|CODE] COMMAND...   run it and check the exit code
//	server ARGS...                 start blast serve udp ARGS; $ADDR is then its address
//	counts NAME NUMBER|sent        the server's count of that name; sent is what the JSON on standard output says was sent
//	cut FILE COPY BYTES            copy the beginning of a file
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar") // the .txt beside them are golden outputs, which Dir would take for scripts
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  scriptExits,
			"server": scriptServer,
			"counts": scriptCounts,
			"cut":    scriptCut,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[serverKey{}] = &serverHolder{}
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE[|CODE] COMMAND...")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	for want := range strings.SplitSeq(args[0], "|") {
		if n, err := strconv.Atoi(want); err != nil {
			ts.Fatalf("exit code %q: %v", want, err)
		} else if n == code {
			return
		}
	}
	ts.Fatalf("exit %d, want %s", code, args[0])
}

// serverKey is where a script keeps its server.
type serverKey struct{}

func scriptServer(ts *testscript.TestScript, _ bool, args []string) {
	s, err := newTarget("blast", append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	ts.Check(err)
	ts.Defer(s.kill)
	ts.Setenv("ADDR", s.addr)
	ts.Value(serverKey{}).(*serverHolder).target = s
}

type serverHolder struct{ *target }

func scriptCounts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: counts NAME NUMBER|sent")
	}
	want := args[1]
	if want == "sent" {
		res, err := stats.ReadResult(strings.NewReader(ts.ReadFile("stdout")))
		ts.Check(err)
		want = strconv.FormatUint(res.Ledger.Sent, 10)
	}
	counts, err := ts.Value(serverKey{}).(*serverHolder).counts()
	ts.Check(err)
	if got := strconv.FormatUint(counts[args[0]], 10); got != want {
		ts.Fatalf("the server counted %s %s, want %s", args[0], got, want)
	}
}

func scriptCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: cut FILE COPY BYTES")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0])[:n]), 0o644))
}
