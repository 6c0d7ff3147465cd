package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Store pushes to the lab's registry.
type Store struct {
	// Address is the registry's host and port.
	Address string
	// Transport connects to the registry.
	Transport http.RoundTripper
}

// reference maps an image's full name to its name in the lab's registry. Nodes
// pull every image from that registry, by the name without its registry.
func (s Store) reference(image string) (name.Reference, error) {
	full, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	tag, ok := full.(name.Tag)
	if !ok {
		return nil, fmt.Errorf("%s: an image is pushed under a tag, not a digest", image)
	}
	return name.NewTag(s.Address+"/"+tag.RepositoryStr()+":"+tag.TagStr(), name.Insecure)
}

func (s Store) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(s.Transport)}
}

// Push stores an image under its full name.
func (s Store) Push(ctx context.Context, image v1.Image, fullName string) error {
	reference, err := s.reference(fullName)
	if err != nil {
		return err
	}
	return remote.Write(reference, image, s.options(ctx)...)
}

// PushArchive stores an OCI image layout in a tar archive (OCI image
// specification, image-layout.md), and returns the digest. It stores one image
// as such, several (of several platforms) as an index. scratch must not exist;
// PushArchive removes it.
func (s Store) PushArchive(ctx context.Context, archive, fullName, scratch string) (digest string, err error) {
	reference, err := s.reference(fullName)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := unpack(archive, scratch); err != nil {
		return "", fmt.Errorf("%s: %w", archive, err)
	}
	index, err := layout.ImageIndexFromPath(scratch)
	if err != nil {
		return "", fmt.Errorf("%s is not an OCI image layout: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) == 0 {
		return "", fmt.Errorf("%s holds no image", archive)
	}
	first := manifest.Manifests[0]
	switch {
	case len(manifest.Manifests) == 1 && first.MediaType.IsImage():
		image, err := index.Image(first.Digest)
		if err != nil {
			return "", err
		}
		return first.Digest.String(), remote.Write(reference, image, s.options(ctx)...)
	case len(manifest.Manifests) == 1 && first.MediaType.IsIndex():
		nested, err := index.ImageIndex(first.Digest)
		if err != nil {
			return "", err
		}
		return first.Digest.String(), remote.WriteIndex(reference, nested, s.options(ctx)...)
	default:
		hash, err := index.Digest()
		if err != nil {
			return "", err
		}
		return hash.String(), remote.WriteIndex(reference, index, s.options(ctx)...)
	}
}

// member matches the files of an image layout. Nothing else is unpacked, so no
// name in an archive can lead outside.
var member = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

func unpack(archive, dir string) error {
	input, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer input.Close()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return err
	}
	reader := tar.NewReader(input)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Clean(header.Name)
		if header.Typeflag != tar.TypeReg || !member.MatchString(path) {
			continue
		}
		output, err := os.Create(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		_, err = io.Copy(output, reader)
		if err = errors.Join(err, output.Close()); err != nil {
			return err
		}
	}
}
