// Command pitstop-cluster is a real Kubernetes for tests in one binary.
//
// It is a multi-call program: with a component's name as its own name or first
// argument, it acts as that component. Under its own name, it runs clusters.
// See README.md.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"pitstop.dev/tests/pitstop-cluster/lab"
	"pitstop.dev/tests/pitstop-cluster/lab/selftest"
)

// components maps a component's name to its main function. Each function sees
// os.Args as if it was executed under that name.
var components = map[string]func(){
	"etcd":                    runEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kube-scheduler":          runScheduler,
	"kube-proxy":              runProxy,
	"kubelet":                 runKubelet,
	"registry":                runRegistry,
	"put":                     runPut,
}

func main() {
	if run, ok := components[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	command := lab.Command()
	command.AddCommand(selftest.Command())
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "pitstop-cluster:", err)
		os.Exit(lab.ExitCode(err))
	}
}
