// Package selftest tries a real cluster from outside: it runs this program and
// kubectl as a user would.
package selftest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
)

// DefaultDir differs from the users' default. Clusters in both cannot run at
// once.
const DefaultDir = "target/cluster/selftest"

// check is one thing that must hold.
type check struct {
	name string
	run  func(ctx context.Context, l *lab) error
}

// Command runs all checks; it fails when one does.
func Command() *cobra.Command {
	runtime := containerd.Default
	command := &cobra.Command{
		Use:   "selftest",
		Short: "Start a cluster of two nodes, try everything, stop it, and look for leftovers",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			dir := DefaultDir
			if flag := command.Flags().Lookup("dir"); flag != nil && flag.Changed {
				dir = flag.Value.String()
			}
			if err := containerd.Check(runtime); err != nil {
				return err
			}
			return run(command.Context(), dir, runtime, os.Stdout)
		},
	}
	command.Flags().StringVar(&runtime, "runtime", runtime, "container runtime of the nodes")
	return command
}

func run(ctx context.Context, dir, runtime string, out io.Writer) error {
	if ctx == nil {
		ctx = context.Background()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	l := &lab{program: program, dir: abs, runtime: runtime, kubeconfig: filepath.Join(abs, "kubeconfig")}
	if _, err := os.Stat(filepath.Join(abs, "state.json")); err == nil {
		return fmt.Errorf("a cluster lies in %s; the self-test needs a directory of its own", abs)
	}
	checks := slices.Concat(startChecks, workChecks, l.volumeChecks(), endChecks)
	failed, begin := 0, time.Now()
	for i, one := range checks {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
		err := one.run(limited, l)
		cancel()
		verdict := "ok  "
		if err != nil {
			verdict = "FAIL"
			failed++
		}
		fmt.Fprintf(out, "%s %2d/%d  %5.1fs  %s\n", verdict, i+1, len(checks), time.Since(start).Seconds(), one.name)
		if err != nil {
			fmt.Fprintf(out, "         %v\n", err)
		}
		if err != nil && i == 0 {
			fmt.Fprintln(out, "nothing else can be tried")
			failed = len(checks)
			break
		}
	}
	fmt.Fprintf(out, "%d checks, %d failed, %.1f s\n", len(checks), failed, time.Since(begin).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}
