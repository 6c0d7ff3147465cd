package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	parsed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	certificate, err := x509.ParseCertificate(parsed.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestServerCertificate(t *testing.T) {
	authority, err := NewAuthority("lab")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Subject{Name: "kube-apiserver", DNS: []string{"kubernetes"}, Addresses: []string{"127.0.0.1", "10.96.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	for _, host := range []string{"kubernetes", "127.0.0.1", "10.96.0.1"} {
		if _, err := leaf(t, pair).Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := leaf(t, pair).VerifyHostname("10.96.0.2"); err == nil {
		t.Error("a foreign address must be refused")
	}
}

func TestClientCertificate(t *testing.T) {
	authority, err := NewAuthority("lab")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Subject{Name: "system:node:node1", Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate := leaf(t, pair)
	if certificate.Subject.CommonName != "system:node:node1" || certificate.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject %v", certificate.Subject)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	client := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := certificate.Verify(client); err != nil {
		t.Error(err)
	}
	server := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := certificate.Verify(server); err == nil {
		t.Error("a client's certificate must not serve")
	}
}

func TestAuthoritiesDoNotVouchForEachOther(t *testing.T) {
	one, err := NewAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewAuthority("two")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := one.Issue(Subject{Name: "someone"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(two.certificate)
	options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := leaf(t, pair).Verify(options); err == nil {
		t.Error("a certificate of another authority must be refused")
	}
}

func TestValidity(t *testing.T) {
	authority, err := NewAuthority("lab")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if !authority.certificate.NotBefore.Before(now.Add(-time.Minute)) || !authority.certificate.NotAfter.After(now.Add(300*24*time.Hour)) {
		t.Errorf("valid from %s to %s", authority.certificate.NotBefore, authority.certificate.NotAfter)
	}
	if !authority.certificate.IsCA {
		t.Error("an authority must be one")
	}
}

func TestIssueRefusesABadAddress(t *testing.T) {
	authority, err := NewAuthority("lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Issue(Subject{Name: "x", Addresses: []string{"not-an-address"}}); err == nil {
		t.Error("must fail")
	}
}

func TestSigningKey(t *testing.T) {
	private, public, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(public)
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(parsed.(*ecdsa.PublicKey)) {
		t.Error("the two parts do not belong together")
	}
}
