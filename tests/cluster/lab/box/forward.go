package box

import (
	"io"
	"log"
	"net"
	"os"
)

// ForwardCommand is the hidden command of the forwarder.
const ForwardCommand = "forward"

// Forward takes connections from the inherited socket, which was made in the
// machine's network namespace and still listens there, and connects each to the
// address in the namespace that this process is in. So the machine reaches a
// box that has no link to it.
func Forward(address string) error {
	file := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	file.Close()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go forward(conn.(*net.TCPConn), address)
	}
}

func forward(outside *net.TCPConn, address string) {
	conn, err := net.Dial("tcp4", address)
	if err != nil {
		log.Printf("%s: %v", address, err)
		// A reset tells the client that nobody is there, rather than that
		// there was nothing to say.
		_ = outside.SetLinger(0)
		outside.Close()
		return
	}
	inside := conn.(*net.TCPConn)
	done := make(chan struct{})
	go func() {
		pass(inside, outside)
		close(done)
	}()
	pass(outside, inside)
	<-done
	outside.Close()
	inside.Close()
}

// pass copies one direction. Its end is passed on as such, so that the other
// direction can go on; a failure ends both.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite()
}
