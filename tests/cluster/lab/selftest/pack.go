package selftest

import (
	"archive/tar"
	"os"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"pitstop.dev/tests/pitstop-cluster/lab/image"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
)

// packImage writes an image as an OCI image layout in a tar archive.
func packImage(archive, dir string) error {
	content, err := image.Busybox(preflight.Find("busybox"))
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendImage(content); err != nil {
		return err
	}
	output, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer output.Close()
	writer := tar.NewWriter(output)
	if err := writer.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return output.Close()
}
