package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"blast/stats"
	"blast/tuning"
)

// probed is one backend's answer.
type probed struct {
	Backend string `json:"backend"`
	Works   string `json:"works"` // yes, no, unknown
	Detail  string `json:"detail"`
}

func probeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "what works on this machine, what does not, why, and the command that would fix it",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			host := tuning.Reader{}.Host("")
			rows := probeAll()
			if asJSON {
				enc := json.NewEncoder(os.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(struct {
					Schema   string     `json:"schema"`
					Host     stats.Host `json:"host"`
					Backends []probed   `json:"backends"`
				}{"blast.probe/1", host, rows})
			}
			printProbe(host, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// probeAll asks every backend.
func probeAll() []probed {
	var rows []probed
	for _, b := range backends() {
		rows = append(rows, probe(b.Name, b.Probe))
	}
	for _, o := range offloads() {
		rows = append(rows, probe(o.Name, o.Probe))
	}
	return rows
}

func probe(name string, ask func() error) probed {
	row := probed{Backend: name, Works: "yes"}
	if err := ask(); err != nil {
		row.Works, row.Detail = "unknown", err.Error()
		if errors.Is(err, errors.ErrUnsupported) {
			row.Works = "no"
		}
	}
	return row
}

func printProbe(host stats.Host, rows []probed) {
	fmt.Printf("host      %s, kernel %s, %s, %d cores\n", host.Hostname, host.Kernel, host.CPU, host.Cores)
	fmt.Printf("          clocksource %s, governor %s, virtualisation %s\n", host.Clocksource, host.Governor, host.Virt)
	for _, r := range rows {
		fmt.Printf("%-9s %-7s %s\n", r.Backend, r.Works, r.Detail)
	}
	if limits, err := (tuning.Reader{}).Limits(); err == nil {
		fmt.Printf("files     %d open at most (each flow needs one): raise with ulimit -n\n", limits.NoFileSoft)
	}
	fmt.Println("next      blast calibrate")
}
