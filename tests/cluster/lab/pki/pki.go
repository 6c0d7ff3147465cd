// Package pki makes the certificates of a cluster. All keys are EC P-256. All
// certificates are valid for a year; a test cluster does not live so long.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const lifetime = 365 * 24 * time.Hour

// Pair is a certificate with its private key, both in PEM.
type Pair struct{ Certificate, Key []byte }

// Authority signs certificates.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Subject says whom a certificate is for.
type Subject struct {
	// Name is the user for Kubernetes, Groups are the user's groups.
	Name   string
	Groups []string
	// DNS and Addresses make it a server's certificate as well.
	DNS       []string
	Addresses []string
}

// NewAuthority makes an authority that signs itself.
func NewAuthority(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	pair, certificate, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return &Authority{Pair: pair, certificate: certificate, key: key}, nil
}

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: subject.Name, Organization: subject.Groups})
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.DNSNames = subject.DNS
	for _, text := range subject.Addresses {
		address := net.ParseIP(text)
		if address == nil {
			return Pair{}, fmt.Errorf("certificate %s: %q is no address", subject.Name, text)
		}
		template.IPAddresses = append(template.IPAddresses, address)
	}
	if len(subject.DNS)+len(subject.Addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	pair, _, err := sign(template, a.certificate, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", subject.Name, err)
	}
	return pair, nil
}

// NewSigningKey makes the key that signs ServiceAccount tokens: private part
// and public part, both in PEM.
func NewSigningKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newTemplate(name pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		// A machine whose clock steps back a little must still accept it.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
	}, nil
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, *x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, nil, err
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return Pair{}, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return Pair{Certificate: text, Key: encoded}, certificate, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
