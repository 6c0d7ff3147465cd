package box

import (
	"strings"
	"testing"
)

// In a unit, a percent sign begins a specifier, and a blank ends a word that is
// not quoted (systemd.unit(5), systemd.service(5)).
func TestPathsOfTheSupervisorsUnitStayAsTheyAre(t *testing.T) {
	unit := supervisorUnit("/a b/100%/cluster", "/logs of 100%/box.log")
	for _, line := range []string{
		`ExecStart="/a b/100%%/cluster" ` + SuperviseCommand,
		"StandardInput=file:" + specPath,
		"StandardOutput=append:/logs of 100%%/box.log",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, unit)
		}
	}
}

func TestABoxIsFoundByItsProcess1(t *testing.T) {
	for _, args := range [][]string{
		{"pitstop-cluster", InitCommand, "--dir", "/d", "node1"},
		{"systemd", "systemd.unit=" + unitName, InitCommand, "--dir", "/d", "node1"},
	} {
		if dir, name := owner(args); dir != "/d" || name != "node1" {
			t.Errorf("%v: %q %q", args, dir, name)
		}
	}
	for _, args := range [][]string{
		{}, {""}, {"pitstop-cluster", "up", "--dir", "/d", "node1"}, {"x", InitCommand, "--dir", "/d"},
		{"grep", "more", InitCommand, "--dir", "/d", "node1"},
	} {
		if dir, name := owner(args); dir != "" || name != "" {
			t.Errorf("%v: %q %q", args, dir, name)
		}
	}
}
