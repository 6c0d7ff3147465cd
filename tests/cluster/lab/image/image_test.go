package image

import (
	"archive/tar"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func sample(t *testing.T) v1.Image {
	t.Helper()
	image, err := assemble([]file{
		{name: "bin", mode: 0o755, dir: true},
		{name: "bin/tool", mode: 0o755, data: []byte("program")},
		{name: "bin/link", mode: 0o777, link: "tool"},
	}, v1.Config{Entrypoint: []string{"/bin/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func store(t *testing.T, dir string) (Store, func()) {
	t.Helper()
	registry, err := NewRegistry(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Store{Address: address.Host, Transport: http.DefaultTransport}, server.Close
}

func pulled(t *testing.T, s Store, name string) v1.Image {
	t.Helper()
	reference, err := s.reference(name)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(reference)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestSameFilesSameDigest(t *testing.T) {
	one, err := sample(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	two, err := sample(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if one != two {
		t.Errorf("%s and %s", one, two)
	}
}

func TestAPushedImageOutlivesTheRegistry(t *testing.T) {
	dir := t.TempDir()
	first, stop := store(t, dir)
	if err := first.Push(context.Background(), sample(t), "example.com/some/tool:2"); err != nil {
		t.Fatal(err)
	}
	stop()

	second, stop := store(t, dir)
	defer stop()
	want, err := sample(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	// The same repository name in another registry leads to the same image.
	image := pulled(t, second, "elsewhere.example/some/tool:2")
	if got, err := image.Digest(); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	reader := tar.NewReader(content)
	var names []string
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if len(names) != 3 || names[1] != "bin/tool" {
		t.Errorf("files %q", names)
	}
}

func TestPushArchive(t *testing.T) {
	source := t.TempDir()
	path, err := layout.Write(source, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(sample(t)); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	writeArchive(t, archive, source)

	s, stop := store(t, t.TempDir())
	defer stop()
	scratch := filepath.Join(t.TempDir(), "scratch")
	digest, err := s.PushArchive(context.Background(), archive, "pitstop.dev/test/tool:1", scratch)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pulled(t, s, "pitstop.dev/test/tool:1").Digest(); err != nil || got.String() != digest {
		t.Errorf("got %s, %v; want %s", got, err, digest)
	}
	if _, err := os.Stat(scratch); !os.IsNotExist(err) {
		t.Error("the scratch directory was left behind")
	}
}

// TestPushArchiveOfPlatforms pushes what `cargo xtask image --platform
// linux/amd64,linux/arm64` writes: an index in the layout's index. Under one
// name, each node gets the image of its platform.
func TestPushArchiveOfPlatforms(t *testing.T) {
	var index v1.ImageIndex = empty.Index
	digests := map[string]string{}
	for _, architecture := range []string{"amd64", "arm64"} {
		file, err := sample(t).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		file.Architecture = architecture
		image, err := mutate.ConfigFile(sample(t), file)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[architecture] = digest.String()
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	source := t.TempDir()
	path, err := layout.Write(source, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendIndex(index); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	writeArchive(t, archive, source)

	s, stop := store(t, t.TempDir())
	defer stop()
	const name = "pitstop.dev/test/tool:1"
	digest, err := s.PushArchive(context.Background(), archive, name, filepath.Join(t.TempDir(), "scratch"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := index.Digest(); err != nil || digest != want.String() {
		t.Errorf("got %s, %v; want %s", digest, err, want)
	}
	reference, err := s.reference(name)
	if err != nil {
		t.Fatal(err)
	}
	for architecture, want := range digests {
		image, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := image.Digest(); err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v; want %s", architecture, got, err, want)
		}
	}
}

// writeArchive packs a directory with names as `tar -C DIR .` gives them, and
// one name that leads outside.
func writeArchive(t *testing.T, archive, dir string) {
	t.Helper()
	output, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	writer := tar.NewWriter(output)
	defer writer.Close()
	add := func(name string, data []byte) {
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	add("../outside", []byte("x"))
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		add("./"+name, data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPushRefusesADigest(t *testing.T) {
	s := Store{Address: "127.0.0.1:1"}
	if _, err := s.reference("a/b@sha256:0123456789012345678901234567890123456789012345678901234567890123"); err == nil {
		t.Error("must fail")
	}
}
