package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Names of the images that every cluster has.
const (
	PauseName   = "pitstop.dev/lab/pause:1"
	BusyboxName = "pitstop.dev/test/busybox:1"
)

// file is one entry of a layer.
type file struct {
	name string
	mode int64
	data []byte
	link string // a symbolic link's target
	dir  bool
}

// Pause is the image of a pod's first process, from the static program at path.
func Pause(path string) (v1.Image, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return assemble([]file{{name: "pause", mode: 0o755, data: program}}, v1.Config{
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	})
}

// Busybox is a small userland for test pods, from the static busybox at path
// with a link for each of its applets.
func Busybox(path string) (v1.Image, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", path, err)
	}
	files := []file{
		{name: "bin", mode: 0o755, dir: true},
		{name: "bin/busybox", mode: 0o755, data: program},
		{name: "etc", mode: 0o755, dir: true},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnobody:x:65534:\n")},
		{name: "root", mode: 0o700, dir: true},
		{name: "tmp", mode: 0o1777, dir: true},
		{name: "var", mode: 0o755, dir: true},
		{name: "var/run", mode: 0o777, link: "/run"},
		{name: "run", mode: 0o755, dir: true},
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			files = append(files, file{name: "bin/" + applet, mode: 0o777, link: "busybox"})
		}
	}
	return assemble(files, v1.Config{
		// Like the servers in the documentation's examples, a container that
		// sets only the image runs until SIGTERM.
		Cmd: []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"},
		Env: []string{"PATH=/bin"},
	})
}

// version is an image for tests that update running Pods: busybox with one more
// layer. A script reads its version from $VERSION.
type version struct {
	name string
	// padding is the size in bytes of a file that does not compress.
	padding int
}

// versions maps image names to versions. "2-again" has the content of "2".
var versions = map[string]version{
	"pitstop.dev/test/busybox:2":       {name: "2"},
	"pitstop.dev/test/busybox:2-again": {name: "2"},
	"pitstop.dev/test/busybox:away":    {name: "away"},
	"pitstop.dev/test/busybox:crash":   {name: "crash"},
	"pitstop.dev/test/busybox:unready": {name: "unready"},
	"pitstop.dev/test/busybox:oom":     {name: "oom"},
	"pitstop.dev/test/busybox:big":     {name: "big", padding: 4 << 20},
	"pitstop.dev/test/other:2":         {name: "other"},
}

// Versions returns further images for tests, by name.
func Versions(busybox v1.Image) (map[string]v1.Image, error) {
	images := map[string]v1.Image{}
	for name, version := range versions {
		image, err := version.of(busybox)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		images[name] = image
	}
	return images, nil
}

func (v version) of(busybox v1.Image) (v1.Image, error) {
	padding := make([]byte, v.padding)
	_, _ = rand.NewChaCha8([32]byte{}).Read(padding) // the same bytes at each call
	layer, err := layerOf([]file{
		{name: "etc/version", mode: 0o644, data: []byte(v.name + "\n")},
		{name: "etc/padding", mode: 0o644, data: padding},
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(busybox, layer)
	if err != nil {
		return nil, err
	}
	current, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	changed := current.DeepCopy()
	changed.Config.Env = append(changed.Config.Env, "VERSION="+v.name)
	return mutate.ConfigFile(image, changed)
}

// assemble makes an image of one layer. Nothing in it depends on the time, so
// the same files give the same digest.
func assemble(files []file, config v1.Config) (v1.Image, error) {
	layer, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	current, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	changed := current.DeepCopy()
	changed.OS, changed.Architecture, changed.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, changed)
}

func layerOf(files []file) (v1.Layer, error) {
	content, err := archive(files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
}

func archive(files []file) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Format: tar.FormatUSTAR}
		switch {
		case f.dir:
			header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
		case f.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		default:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(f.data))
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := writer.Write(f.data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
