package box

import (
	"encoding/base64"
	"io"
	"net"
	"testing"
)

// pair gives the two ends of a TCP connection.
func pair(t *testing.T) (one, other *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

func readAll(conn net.Conn) string {
	text, _ := io.ReadAll(conn)
	return string(text)
}

func pemBody(der []byte) string { return base64.StdEncoding.EncodeToString(der) + "\n" }
