package box

import (
	"io"
	"log"
	"net"
	"os"
)

// ForwardCommand is the hidden command of the forwarder.
const ForwardCommand = "forward"

// Forward accepts connections from the inherited socket, and connects each to
// the address. The socket listens in the machine's network namespace, and the
// address is in that of this process. So the machine can reach a box that has
// no link to it.
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
		// A reset tells the client that nothing listens. A plain close would
		// look like an empty answer.
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

// pass copies one direction. At its end, it closes only that direction, so that
// the other can continue. A failure closes both.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite()
}
