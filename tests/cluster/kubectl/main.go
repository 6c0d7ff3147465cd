// Command kubectl is Kubernetes' own, beside the cluster. It is a program of
// its own because tests start it often: in the cluster's program, each start
// would first initialize all components.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// The upstream command imports these for their side effects: JSON logs, and
	// metrics of the client library and of the version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	command := cmd.NewDefaultKubectlCommand()
	// kubectl logs while it parses its flags, so set the level first.
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		util.CheckErr(err)
	}
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
}
