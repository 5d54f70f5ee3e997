package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"blast/report"
	"blast/stats"
)

// output is where a result goes: always standard output, and a file when asked. The file is made before the run, beside its final
// name, so that an unwritable place is known before anything is sent; it gets its name when it is whole. A device, a pipe or another
// special file is written to as it is: a rename would put a file in its place.
type output struct {
	path    string
	temp    *os.File
	special bool
}

func openOutput(path string) (*output, error) {
	if path == "" {
		return &output{}, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("--out %s: is a directory; name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		return &output{path: path, temp: f, special: true}, nil
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	return &output{path: path, temp: temp}, nil
}

// discard removes the unfinished file, if there is one.
func (o *output) discard() {
	if o.temp != nil {
		o.temp.Close()
		if !o.special {
			os.Remove(o.temp.Name())
		}
		o.temp = nil
	}
}

// write prints res to w in the format and writes the file.
func (o *output) write(res *stats.Result, format string, w io.Writer) error {
	return o.emit(format == "json", w, func(b io.Writer) error { return render(b, res, format, isTerminal(w)) },
		func(b io.Writer) error { return report.JSON(b, res) })
}

// emit prints to w what show makes and writes to the file what asJSON makes; jsonShown says that both are the same. A file that cannot be
// written loses nothing: the JSON goes to w too, and the error says so. The file is written even if nothing can be shown.
func (o *output) emit(jsonShown bool, w io.Writer, show, asJSON func(io.Writer) error) error {
	var buf bytes.Buffer
	printErr := show(&buf)
	if printErr == nil {
		_, printErr = w.Write(buf.Bytes())
	}
	if o.temp == nil {
		return printErr
	}
	err := asJSON(o.temp)
	switch {
	case err != nil:
	case o.special:
		err = o.temp.Close()
	default:
		if err = errors.Join(o.temp.Chmod(0o644), o.temp.Sync(), o.temp.Close()); err == nil {
			err = os.Rename(o.temp.Name(), o.path)
		}
	}
	if err == nil {
		o.temp = nil
		return printErr
	}
	o.discard()
	if !jsonShown {
		printErr = asJSON(w)
	}
	if printErr != nil {
		return errors.Join(fmt.Errorf("--out %s: %w", o.path, err), printErr)
	}
	return fmt.Errorf("--out %s: %w; nothing is lost: the result was printed to standard output as JSON instead", o.path, err)
}

// checkFormat refuses a format that render does not know.
func checkFormat(format string) error {
	switch format {
	case "text", "json", "csv", "hgrm", "hlog", "html":
		return nil
	}
	return fmt.Errorf("format %q: want text, json, csv, hgrm, hlog or html", format)
}

func render(w io.Writer, res *stats.Result, format string, color bool) error {
	switch format {
	case "json":
		return report.JSON(w, res)
	case "csv":
		return report.CSV(w, res)
	case "hgrm":
		return report.HGRM(w, res, &res.Latency)
	case "hlog":
		return report.HDRLog(w, res)
	case "html":
		return report.HTML(w, res)
	}
	return report.Text(w, res, report.Options{Color: color})
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
