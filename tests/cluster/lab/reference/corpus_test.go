// Package reference records how github.com/distribution/reference parses image
// references. The kubelet and containerd use that library, and pitstop's own
// parser must agree: api/tests/references.rs.
package reference

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	// The library knows only digest algorithms that are linked.
	_ "crypto/sha256"
	_ "crypto/sha512"

	"github.com/distribution/reference"
)

const corpus = "../../../../api/tests/references.jsonl"

var (
	write     = flag.String("write", "", "write the corpus there and compare nothing")
	generated = flag.Int("generated", 1500, "how many references are made up")
	seed      = flag.Uint64("seed", 1, "what they are made from")
)

// line is the library's result for a text; without a path, the library refuses
// the text.
type line struct {
	Text     string `json:"text"`
	Registry string `json:"registry,omitempty"`
	Path     string `json:"path,omitempty"`
	Tag      string `json:"tag,omitempty"`
	Digest   string `json:"digest,omitempty"`
}

func said(text string) line {
	said := line{Text: text}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return said
	}
	said.Registry, said.Path = reference.Domain(named), reference.Path(named)
	if tagged, ok := named.(reference.Tagged); ok {
		said.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		said.Digest = digested.Digest().String()
	}
	return said
}

// fixed returns the cases written by hand.
func fixed() []string {
	hex := func(n int) string { return strings.Repeat("0123456789abcdef", n/16) }
	sha256, sha384, sha512 := "sha256:"+hex(64), "sha384:"+hex(96), "sha512:"+hex(128)
	a := func(n int) string { return strings.Repeat("a", n) }
	all := []string{
		"", " ", "/", ":", "@", "a", "A", "a:", ":a", "a@", "@" + sha256, "a/", "/a", "a//b", "a b", "a\n", "a\x00", "ä", "a:ä",
		"nginx", "nginx:1.25", "nginx:latest", "team/web", "team/web:v1", "library/nginx", "docker.io/nginx",
		"docker.io/library/nginx", "docker.io/team/web", "index.docker.io/nginx", "index.docker.io/team/web:v1",
		"registry-1.docker.io/library/nginx", "docker.io", "docker.io/", "docker.io:443/nginx", "Docker.io/nginx", "DOCKER.IO/team/web",
		"Index.docker.io/nginx", "https://docker.io/nginx", "docker://nginx", "user@host/web", "user:pass@host/web",
		"localhost", "localhost/web", "localhost:5000/web", "localhost:5000", "LOCALHOST/web", "Localhost/web", "localhost:/web",
		"registry.example.com:5000/shop/web:v2", "registry.example.com:5000/shop/web", "registry.example.com/web", "registry:5000/web",
		"registry/web", "HOST/web", "Host/web", "hOST:5000/web", "Registry.Example.com/web", "registry.example.com./web", ".example.com/web",
		"a..b/web", "-a.b/web", "a-.b/web", "a.-b/web", "a_b.c/web", "a_b:5000/web", "ho_st/web", "xn--bcher-kva.example/web",
		"host:port/web", "host:/web", "host:5000000/web", "host:0/web", "host:-1/web", "host:5000:6000/web", "host:5000/web:6000",
		"10.0.0.1:5000/a/b/c", "10.0.0.1/a", "256.256.256.256/a", "[fe80::1]/web", "[fe80::1]:5000/web:a", "[FE80::1]:5000/web",
		"[2001:db8:0:0:0:0:0:1]/web", "[::]/web", "[::1]:/web", "[::1/web", "::1]/web", "[]/web", "[fe80::1%eth0]/web", "[fe80::g]/web",
		"[10.0.0.1]/web", "[::1]web/web", "[::1]", "[::1]:5000", "fe80::1/web", "x[::1]/web",
		"web:.a", "web:-a", "web:_a", "web:A", "web:a.b-c_d", "web:a/b", "web:a:b", "web:a+b", "web: a", "web:v1 ", " web:v1",
		"web:" + a(128), "web:" + a(129), "Web", "team/Web", "TEAM/web", "team.x/Web", "a.b/C:d", "web_", "_web", "web.", ".web", "web-",
		"-web", "we__b", "we___b", "we..b", "we._b", "we-_b", "we---b", "we--.b", "w/e/b", "w.e/b.c/d_e/f__g/h-i", "a./b", "a.b", "a.b:c",
		"a.b:5000", "a.b/", "a/b.c/d", "a/b:5000/c", "0", "0/0", "0.0/0:0",
		hex(64), hex(64) + ":a", hex(64) + "@" + sha256, "team/" + hex(64), strings.ToUpper(hex(64)), hex(48), a(64), a(63) + "g", a(65),
	}
	for _, digest := range []string{
		sha256, sha384, sha512, "sha256:" + hex(48), "sha256:" + hex(64) + "0", "sha256:" + strings.ToUpper(hex(64)),
		"sha256:" + hex(48) + "000000000000000g", "SHA256:" + hex(64), "sha1:" + hex(32) + "01234567", "md5:" + hex(32), "sha256" + hex(64),
		"sha512:" + hex(64), "sha384:" + hex(64), "sha256:", ":" + hex(64), "tarsum.v1+sha256:" + hex(64), "blake3:" + hex(64),
		"sha-256:" + hex(64), sha256 + "@" + sha256, sha256 + ":a", sha256 + " ", "latest",
	} {
		for _, name := range []string{"web", "web:v1", "registry.example.com:5000/shop/web:v1", "localhost/web", "[::1]:5000/web"} {
			all = append(all, name+"@"+digest)
		}
	}
	// Names around the maximum length, with and without other parts.
	for _, n := range []int{239, 240, 246, 247, 248, 254, 255, 256, 300} {
		all = append(all, a(n), "x/"+a(n-2), "docker.io/"+a(n), "r.io/"+a(n), "r.io/"+a(n)+":tag@"+sha256, "localhost:5000/"+a(n))
	}
	return all
}

// makeUp joins valid and invalid parts of references, and sometimes changes one
// character.
func makeUp(rng *rand.Rand) string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	hosts := []string{"docker.io/", "index.docker.io/", "localhost/", "localhost:5000/", "r.example.com/", "R.Example.com:443/", "HOST/",
		"host/", "host:80/", "10.0.0.1:5000/", "[::1]/", "[fe80::a]:5000/", "a-b.c/", "a_b/", "/", "a..b/", "a.b.:1/"}
	words := []string{"a", "web", "library", "x.y", "x_y", "x__y", "x--y", "x-.y", "0", "Web", "", "a_", "9z"}
	hex := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteByte("0123456789abcdef"[rng.IntN(16)])
		}
		return text.String()
	}
	var text strings.Builder
	if rng.IntN(2) == 0 {
		text.WriteString(pick(hosts...))
	}
	for n := rng.IntN(3); n >= 0; n-- {
		// Mostly valid words.
		text.WriteString(words[rng.IntN(5+rng.IntN(len(words)-4))])
		if n > 0 {
			text.WriteByte('/')
		}
	}
	if rng.IntN(2) == 0 {
		text.WriteString(":" + pick("1", "v1.2-3_4", "latest", "_x", "T", "", ".a", "-a", "a+b", strings.Repeat("t", 127+rng.IntN(3))))
	}
	if rng.IntN(3) == 0 {
		text.WriteString("@" + pick("sha256:", "sha256:", "sha256:", "sha512:", "sha384:", "sha1:") + hex([]int{64, 64, 64, 128, 96, 40, 63}[rng.IntN(7)]))
	}
	made := []byte(text.String())
	if rng.IntN(3) == 0 && len(made) > 0 {
		const others = "aZ0.-_:/@[]+ %~"
		at := rng.IntN(len(made))
		switch rng.IntN(3) {
		case 0:
			made[at] = others[rng.IntN(len(others))]
		case 1:
			made = append(made[:at], made[at+1:]...)
		default:
			made = append(made[:at], append([]byte{others[rng.IntN(len(others))]}, made[at:]...)...)
		}
	}
	return string(made)
}

func lines(t *testing.T) []byte {
	t.Helper()
	texts := fixed()
	rng := rand.New(rand.NewPCG(*seed, 0))
	for range *generated {
		texts = append(texts, makeUp(rng))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, text := range texts {
		if err := encoder.Encode(said(text)); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// The corpus must be the library's results, not our wishes.
func TestTheCorpusIsWhatTheLibrarySays(t *testing.T) {
	made := lines(t)
	if *write != "" {
		if err := os.WriteFile(*write, made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	held, err := os.ReadFile(corpus)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, held) {
		t.Fatalf("%s is another one: in tests/cluster, run\n"+
			"go test ./lab/reference -args -write %s", corpus, corpus)
	}
}
